#include "control/names.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "control/errors.hpp"
#include "control/line_socket.hpp"

namespace afflux::control {
namespace {

// A question to the C library's own thread, which may go on after everybody has given up.
struct Question {
    std::string host, port;
    addrinfo hints{};
    gaicb request{};

    Question(std::string host_, std::uint16_t port_, int type)
        : host(std::move(host_)), port(std::to_string(port_)) {
        hints.ai_socktype = type;
        request.ar_name = host.c_str();
        request.ar_service = port.c_str();
        request.ar_request = &hints;
    }
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;
};

// Whether there is an answer before the deadline.
bool answered(const gaicb& request, double deadline) {
    const gaicb* const all[] = {&request};
    for (;;) {
        const double rest = std::max(0.0, deadline - monotonic_now());
        const double whole = std::floor(rest);
        const timespec time{static_cast<time_t>(whole), static_cast<long>((rest - whole) * 1e9)};
        const int result = gai_suspend(all, 1, &time);
        if (result == 0 || result == EAI_ALLDONE) return true;
        if (result != EAI_INTR) return false;
    }
}

}  // namespace

Addresses resolve(const std::string& host, std::uint16_t port, int type, double deadline) {
    const std::string where = authority(host, port);
    addrinfo numeric{};
    numeric.ai_socktype = type;
    numeric.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const std::string service = std::to_string(port);
    if (getaddrinfo(host.c_str(), service.c_str(), &numeric, &found) == 0) {
        return {found, freeaddrinfo};
    }
    auto question = std::make_unique<Question>(host, port, type);
    gaicb* asked[] = {&question->request};
    int failed = getaddrinfo_a(GAI_NOWAIT, asked, 1, nullptr);
    if (failed != 0) throw Unreachable(where + ": " + gai_strerror(failed));
    if (!answered(question->request, deadline)) {
        if (gai_cancel(&question->request) == EAI_NOTCANCELED) {
            // Its thread still has it.
            static_cast<void>(question.release());
        }
        throw Unreachable(where + ": no name server has answered in time");
    }
    failed = gai_error(&question->request);
    if (failed != 0) throw Unreachable(where + ": " + gai_strerror(failed));
    return {question->request.ar_result, freeaddrinfo};
}

}  // namespace afflux::control
