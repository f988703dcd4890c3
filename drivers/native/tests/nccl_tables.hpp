// NCCL's tables as flat structs, versions 8 to 12: a second reading of its public headers
// (src/include/plugin/net/net_v8.h to net_v12.h), which shares nothing with the plugin's own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace afflux::tests {

using Log = void (*)(int level, unsigned long flags, const char* file, int line, const char* format,
                     ...);

// Members in NCCL's order and under its names; all functions return ncclResult_t.
#define COLLNET_HEAD(COUNT)                                                                     \
    int (*connect)(void* handles[], int nranks, int rank, void* listenComm, void** collComm);   \
    int (*reduceSupport)(int dataType, int redOp, int* supported);                              \
    int (*regMr)(void* collComm, void* data, std::size_t size, int type, void** mhandle);       \
    int (*regMrDmaBuf)(void*, void*, std::size_t, int, std::uint64_t, int, void**);             \
    int (*deregMr)(void* collComm, void* mhandle);                                              \
    int (*iallreduce)(void* collComm, void* sendData, void* recvData, COUNT count, int type,    \
                      int redOp, void* sendMhandle, void* recvMhandle, void** request);         \
    int (*iallgather)(void*, void*, int, void*, std::size_t, std::size_t, std::size_t, void*,   \
                      void**);                                                                  \
    int (*ireducescatter)(void*, int, void*, void*, std::size_t, std::size_t, std::size_t, int, \
                          int, void*, void**);                                                  \
    int (*iflush)(void*, void*, int, void*, void**);                                            \
    int (*test)(void* request, int* done, int* size);                                           \
    int (*closeColl)(void* collComm);                                                           \
    int (*closeListen)(void* listenComm);

struct CollNetV8 {
    const char* name;
    int (*init)(Log log);
    int (*devices)(int* ndev);
    int (*getProperties)(int dev, void* props);
    int (*listen)(int dev, void* handle, void** listenComm);
    COLLNET_HEAD(int)
};
static_assert(sizeof(CollNetV8) == 136);

struct CollNetV9 {
    const char* name;
    int (*init)(Log log);
    int (*devices)(int* ndev);
    int (*getProperties)(int dev, void* props);
    int (*listen)(int dev, void* handle, void** listenComm);
    COLLNET_HEAD(std::size_t)
    int (*makeVDevice)(int* d, void* props);
};
static_assert(sizeof(CollNetV9) == 144);

struct CollNetV10 : CollNetV9 {};

struct CollNetV11 {
    const char* name;
    int (*init)(void** ctx, std::uint64_t commId, Log log);
    int (*devices)(int* ndev);
    int (*getProperties)(int dev, void* props);
    int (*listen)(void* ctx, int dev, void* handle, void** listenComm);
    COLLNET_HEAD(std::size_t)
    int (*makeVDevice)(int* d, void* props);
    int (*finalize)(void* ctx);
};
static_assert(sizeof(CollNetV11) == 152);

struct CollNetV12 : CollNetV11 {};

#undef COLLNET_HEAD

// Of Net only the latest: the others are read in Python.
struct NetV12 {
    const char* name;
    int (*init)(void** ctx, std::uint64_t commId, void* config, Log log, void* profiler);
    int (*devices)(int* ndev);
    int (*getProperties)(int dev, void* props);
    int (*listen)(void* ctx, int dev, void* handle, void** listenComm);
    int (*connect)(void* ctx, int dev, void* handle, void** sendComm, void** sendDevComm);
    int (*accept)(void* listenComm, void** recvComm, void** recvDevComm);
    int (*regMr)(void* comm, void* data, std::size_t size, int type, void** mhandle);
    int (*regMrDmaBuf)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
    int (*deregMr)(void* comm, void* mhandle);
    int (*isend)(void* sendComm, void* data, std::size_t size, int tag, void* mhandle,
                 void* phandle, void** request);
    int (*irecv)(void* recvComm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                 void** phandles, void** request);
    int (*iflush)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request);
    int (*test)(void* request, int* done, int* sizes);
    int (*closeSend)(void* sendComm);
    int (*closeRecv)(void* recvComm);
    int (*closeListen)(void* listenComm);
    int (*getDeviceMr)(void* comm, void* mhandle, void** dptr_mhandle);
    int (*irecvConsumed)(void* recvComm, int n, void* request);
    int (*makeVDevice)(int* d, void* props);
    int (*finalize)(void* ctx);
    int (*setNetAttr)(void* ctx, void* netAttr);
};
static_assert(sizeof(NetV12) == 176);

}  // namespace afflux::tests

extern "C" {
extern const afflux::tests::CollNetV8 ncclCollNetPlugin_v8;
extern const afflux::tests::CollNetV9 ncclCollNetPlugin_v9;
extern const afflux::tests::CollNetV10 ncclCollNetPlugin_v10;
extern const afflux::tests::CollNetV11 ncclCollNetPlugin_v11;
extern const afflux::tests::CollNetV12 ncclCollNetPlugin_v12;
extern const afflux::tests::NetV12 ncclNetPlugin_v12;
}
