/* A group's collectives for another shared library of the same process, which may be compiled by
 * another compiler and against other headers: plain C types only. The group is one of ranks that
 * share memory, or a worker's of jobs at aggregators; the latter's can only all-reduce, in place,
 * what the protocol has types and reductions for.
 *
 * `SharedGroup.calls()` and `WorkerCalls.calls()` return a PyCapsule of the name AFFLUX_CALLS to a
 * struct afflux_calls. The capsule keeps its memory; whoever uses the pointer keeps the capsule.
 * After `close()` every call returns AFFLUX_FAILED.
 *
 * No function throws, and none needs or takes Python's lock: call them without it, as they wait.
 * Calls of one group may come from any thread, one after the other.
 */
#ifndef AFFLUX_CALLS_H
#define AFFLUX_CALLS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AFFLUX_CALLS "afflux.calls"

/* Grows with every change of a struct or of a number below. Refuse other versions. */
#define AFFLUX_CALLS_VERSION 3u

enum afflux_collective {
    AFFLUX_ALL_REDUCE = 0,
    AFFLUX_BROADCAST = 1,
    AFFLUX_ALL_GATHER = 2,
    AFFLUX_REDUCE_SCATTER = 3,
    AFFLUX_BARRIER = 4
};

/* float64 and the integers but int32 are summed as they are. AFFLUX_BYTES only moves: the type of
 * the elements then belongs into the fingerprint, and the count is in bytes. */
enum afflux_dtype {
    AFFLUX_INT32 = 0,
    AFFLUX_FLOAT32 = 1,
    AFFLUX_FLOAT16 = 2,
    AFFLUX_BFLOAT16 = 3,
    AFFLUX_INT64 = 4,
    AFFLUX_INT16 = 5,
    AFFLUX_INT8 = 6,
    AFFLUX_UINT8 = 7,
    AFFLUX_FLOAT64 = 8,
    AFFLUX_BYTES = 9
};

/* The product is of integers and float64 only. */
enum afflux_reduction {
    AFFLUX_SUM = 0,
    AFFLUX_AVG = 1,
    AFFLUX_MAX = 2,
    AFFLUX_MIN = 3,
    AFFLUX_PRODUCT = 4
};

enum afflux_status {
    /* The outputs hold the result. */
    AFFLUX_OVER = 0,
    /* The operation goes on: call `advance`, or the Python worker's `finish`. */
    AFFLUX_NOT_YET = 1,
    /* The ranks called different things. In shared memory no tensor has changed; at aggregators,
     * one in place may have. The group is of no more use. */
    AFFLUX_DISAGREEMENT = 2,
    /* A rank has ended or failed the group, or an aggregator has. The outputs are undefined. The
     * group is of no more use. */
    AFFLUX_FAILED = 3,
    /* The request cannot be, or another operation is in progress. Nothing has happened. */
    AFFLUX_INVALID = 4
};

/* With N ranks:
 *
 *                    inputs                          outputs
 *     all-reduce     none                            1 of count elements, reduced in place
 *     broadcast      none                            1 of count, the root's and all others' tensor
 *     all-gather     1 of count                      N of count each, or 1 of N * count
 *     reduce-scatter N of count each, or 1 of        1 of count
 *                    N * count
 *     barrier        none                            none; count is 0
 *
 * All are contiguous. An input may be the rank's own part of the output, and an output its own part
 * of the input. The memory of the tensors must stay until the operation is over; this struct and
 * its lists need not. All ranks must have the same values but for the pointers. */
struct afflux_request {
    int32_t collective;
    int32_t dtype;
    int32_t reduction; /* of all-reduce and reduce-scatter, else ignored */
    int32_t root;      /* of a broadcast, else 0 */
    uint64_t count;
    /* Of what else must be the same at all ranks; for aggregators, what `describe` returned. */
    uint64_t fingerprint;
    uint64_t history; /* of what the rank called before; 0 for none; aggregators ignore it */
    const void* const* inputs;
    void* const* outputs;
    uint32_t input_count;
    uint32_t output_count;
};

struct afflux_outcome {
    uint64_t operation; /* number of the operation, counted from 1; what `advance` takes */
    char text[512];     /* why, if neither over nor not yet; ends with a zero byte */
};

struct afflux_group; /* opaque */

struct afflux_calls {
    uint32_t version; /* AFFLUX_CALLS_VERSION */
    uint32_t size;    /* of this struct, in bytes */
    struct afflux_group* group;
    int32_t rank;
    int32_t ranks;

    /* Begin an operation and do not wait. Returns NOT_YET, FAILED or INVALID. */
    int32_t (*begin)(struct afflux_group* group, const struct afflux_request* request,
                     struct afflux_outcome* outcome);
    /* Work and wait for up to so long. `operation` is the number of the one that is meant, from an
     * outcome; it may be over already. */
    int32_t (*advance)(struct afflux_group* group, uint64_t operation, int64_t nanoseconds,
                       struct afflux_outcome* outcome);
    /* Do both in one. */
    int32_t (*run)(struct afflux_group* group, const struct afflux_request* request,
                   int64_t nanoseconds, struct afflux_outcome* outcome);
    /* The number of the operation in progress, or 0 if none is. May wait while another thread is
     * inside `run` or `advance`. */
    uint64_t (*in_progress)(struct afflux_group* group);
};

/* Correctly rounded sums in memory: `_native.sum_calls()` returns a PyCapsule of the name
 * AFFLUX_SUMS to this struct, which lives as long as the process. */
#define AFFLUX_SUMS "afflux.sums"

struct afflux_sums {
    uint32_t version; /* AFFLUX_CALLS_VERSION */
    uint32_t size;    /* of this struct, in bytes */

    /* Write the sums, or averages, of `count` elements of each rank. The dtype is float32, float16
     * or bfloat16; `out` may be one of the sources, or overlap none. */
    void (*sum)(int32_t dtype, int32_t reduction, uint64_t count, uint32_t ranks,
                const void* const* elements, void* out);
};

#ifdef __cplusplus
}
#endif

#endif
