// A group as Python holds it: its collectives, whatever the ranks have in common.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/arrays.hpp"
#include "collectives/c_api.hpp"

namespace afflux::bindings {

inline constexpr const char* kCollectiveNames[collectives::kCollectives] = {
    "all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier"};

class GroupHandle {
  public:
    explicit GroupHandle(std::shared_ptr<collectives::Group> group)
        : handle_(std::make_shared<collectives::Calls>(std::move(group))) {}

    std::uint64_t begin(const Output& array, int dtype, int reduction, std::uint64_t fingerprint);
    bool advance(double timeout_s, std::uint64_t operation);
    std::uint64_t run(int what, const nanobind::object& inputs, const nanobind::object& outputs,
                      std::size_t count, int dtype, int reduction, int root,
                      std::uint64_t fingerprint, std::uint64_t history, double timeout_s) const;
    nanobind::object calls() const;

    std::uint64_t in_progress() const { return handle_->in_progress(); }
    std::vector<std::uint64_t> histories() const { return open()->histories(); }
    std::vector<int> differing() const { return open()->differing(); }
    std::vector<std::uint64_t> fingerprints() const { return open()->fingerprints(); }
    std::vector<int> missing() const { return open()->missing(); }
    bool waits_for_aggregator() const { return open()->waits_for_aggregator(); }
    std::string obstacle() const { return open()->obstacle(); }
    // Also asked when another thread has closed the group meanwhile.
    std::vector<int> dead() const;
    void fail(const std::string& text) const {
        const auto group = open();
        // It lets the peers know, which may take a while.
        const nanobind::gil_scoped_release no_python;
        group->fail(text);
    }
    bool failed() const { return !open()->failure().empty(); }
    std::string failure() const { return open()->failure(); }
    int rank() const { return open()->rank(); }
    int ranks() const { return open()->ranks(); }
    void close();
    // Null if it is closed.
    std::shared_ptr<collectives::Group> group() const { return handle_->group(); }

  protected:
    std::shared_ptr<collectives::Group> open() const { return handle_->open(); }

  private:
    const std::shared_ptr<collectives::Calls> handle_;
    nanobind::object array_;  // of the operation in progress
};

}  // namespace afflux::bindings
