// Lanes that UCX carries, as Python makes and connects them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "carriers/ucx_lane.hpp"
#include "streams/mesh.hpp"

namespace afflux::bindings {

class UcxLanes {
  public:
    UcxLanes(const std::string& library, const std::vector<std::vector<int>>& sockets);
    UcxLanes(const UcxLanes&) = delete;
    UcxLanes& operator=(const UcxLanes&) = delete;

    // By lane.
    std::vector<nanobind::bytes> addresses() const;
    void connect(std::size_t member, const std::vector<nanobind::bytes>& addresses);
    std::string version() const;
    // Hands them over.
    streams::Mesh::Carriers take();

  private:
    std::shared_ptr<const carriers::UcxContext> context_;
    std::vector<std::unique_ptr<carriers::UcxLane>> lanes_;
};

// Those of `lanes`, none if it is null.
inline streams::Mesh::Carriers carriers_of(UcxLanes* lanes) {
    return lanes ? lanes->take() : streams::Mesh::Carriers{};
}

}  // namespace afflux::bindings
