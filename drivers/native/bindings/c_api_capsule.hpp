// The capsule of c_api.h.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "c_api/handle.hpp"

namespace afflux::bindings {

// Returns a capsule of the group's calls. It owns a share of the group, whose `calls` it points to;
// objects behind these may be closed.
nanobind::object capsule_of(const std::shared_ptr<afflux_group>& group);

}  // namespace afflux::bindings
