#include "aggregator/steering.hpp"

#include <linux/filter.h>
#include <sys/socket.h>

#include <cstdint>
#include <vector>

namespace afflux::aggregator {
namespace {

using Program = std::vector<sock_filter>;

constexpr std::uint16_t kLoadByte = BPF_LD | BPF_B | BPF_ABS;
constexpr std::uint16_t kEquals = BPF_JMP | BPF_JEQ | BPF_K;

sock_filter step(std::uint16_t code, std::size_t value, std::uint8_t if_true = 0,
                 std::uint8_t if_false = 0) {
    return {code, if_true, if_false, static_cast<std::uint32_t>(value)};
}

void append(Program& program, const engine::Job& job) {
    const std::size_t slot = wire::kSlotAt;
    Program here;
    if (job.shares == 1) {
        here = {step(BPF_RET | BPF_K, job.first_share)};
    } else {
        // As Job::owner. Loads are big-endian, the field is not. A slot beyond the job's gives a
        // socket that does not exist, for which the kernel takes any.
        here = {
            step(kLoadByte, slot + 1),
            step(BPF_ALU | BPF_LSH | BPF_K, 8),
            step(BPF_MISC | BPF_TAX, 0),
            step(kLoadByte, slot),
            step(BPF_ALU | BPF_OR | BPF_X, 0),
            step(BPF_ALU | BPF_MUL | BPF_K, job.shares),
            step(BPF_ALU | BPF_DIV | BPF_K, job.slots),
            step(BPF_ALU | BPF_ADD | BPF_K, job.first_share),
            step(BPF_RET | BPF_A, 0),
        };
    }
    program.push_back(step(kEquals, job.number, 0, static_cast<std::uint8_t>(here.size())));
    program.insert(program.end(), here.begin(), here.end());
}

}  // namespace

bool steer(const datagrams::UdpSocket& socket, const engine::Core& core, unsigned jobs) {
    // A load beyond the datagram's end ends the program with 0.
    Program program{
        step(kLoadByte, wire::kVersionTypeAt),
        step(BPF_ALU | BPF_AND | BPF_K, 15),
        // Joins go to the first thread, whatever their slot.
        step(kEquals, static_cast<std::size_t>(wire::Type::Join), 0, 1),
        step(BPF_RET | BPF_K, 0),
        step(kLoadByte, wire::kJobAt),
    };
    for (unsigned number = 0; number < jobs; ++number) {
        if (const engine::Job* job = core.job_at(number)) append(program, *job);
    }
    program.push_back(step(BPF_RET | BPF_K, 0));
    const sock_fprog loaded{static_cast<std::uint16_t>(program.size()), program.data()};
    return setsockopt(socket.number(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &loaded,
                      sizeof loaded) == 0;
}

}  // namespace afflux::aggregator
