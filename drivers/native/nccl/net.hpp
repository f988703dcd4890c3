// Point-to-point transfers for NCCL over TCP, whatever the version of its tables.
//
// NCCL takes a plugin for collectives only together with one for transfers, with the same devices.
#pragma once

#include <cstddef>

#include "nccl/net_abi.hpp"

namespace afflux::nccl::net {

abi::Result devices(int* count) noexcept;
abi::Result listen(int device, void* handle, void** listen_comm) noexcept;
// Both give null for as long as the connection is under way.
abi::Result connect(void* handle, void** comm) noexcept;
abi::Result accept(void* listen_comm, void** comm) noexcept;
// `parent` is that of the profiler's event; null: there is none.
abi::Result send(void* comm, void* data, std::size_t bytes, void* parent, void** request) noexcept;
abi::Result receive(void* comm, int parts, void* data, std::size_t bytes, void* parent,
                    void** request) noexcept;
abi::Result test(void* request, int* done, int* sizes) noexcept;
abi::Result close(void* comm) noexcept;
abi::Result close_listen(void* listen_comm) noexcept;

}  // namespace afflux::nccl::net
