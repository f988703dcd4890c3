// All-reduces for NCCL, whatever the version of its tables: what their functions do.
#pragma once

#include <cstddef>

#include "nccl/net_abi.hpp"

namespace afflux::nccl::collnet {

abi::Result init(abi::Logger logger) noexcept;
abi::Result devices(int* count) noexcept;
abi::Result listen(int device, void* handle, void** listen_comm) noexcept;
// Forms a communicator; it may take as long as AFFLUX_CONNECT_TIMEOUT says, thrice.
abi::Result connect(void* handles[], int ranks, int rank, void* listen_comm, void** comm) noexcept;
abi::Result reduce_support(int data_type, int red_op, int* supported) noexcept;
abi::Result register_memory(void* comm, void* data, std::size_t size, int type,
                            void** handle) noexcept;
abi::Result deregister_memory(void* comm, void* handle) noexcept;
abi::Result all_reduce(void* comm, void* send, void* receive, std::size_t count, int data_type,
                       int red_op, void* send_handle, void** request) noexcept;
abi::Result test(void* request, int* done, int* size) noexcept;
abi::Result close(void* comm) noexcept;
abi::Result close_listen(void* listen_comm) noexcept;

}  // namespace afflux::nccl::collnet
