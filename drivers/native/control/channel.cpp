#include "control/channel.hpp"

#include <map>

#include "control/errors.hpp"

namespace afflux::control {
namespace {

constexpr std::size_t kAnswerBytes = 1 << 16;

constexpr const char* kUnproved =
    "the answer does not prove that it knows the secret: another program listens there, or "
    "somebody changes what passes";

// Why there is no agreement, by the `secret` of an answer without a code.
const char* disagreement(const std::string& about) {
    static const std::map<std::string, const char*> kTexts{
        {"required",
         "it asks for a secret, and none is set here: AFFLUX_SECRET_FILE names the file"},
        {"none",
         "a secret is set here (AFFLUX_SECRET_FILE), and it has none: it needs --secret-file"},
        {"wrong", "it has another secret than the one that is set here (AFFLUX_SECRET_FILE)"},
        {"broken", "it got a line whose code is wrong, which somebody has changed on its way"},
    };
    const auto found = kTexts.find(about);
    return found == kTexts.end() ? nullptr : found->second;
}

LineSocket connected(const Place& place, double seconds) {
    try {
        return LineSocket::connect(place.host, place.port, monotonic_now() + seconds);
    } catch (const NobodyListens& error) {
        throw NobodyListens("cannot reach the control channel of the aggregator at " +
                            std::string(error.what()));
    } catch (const Unreachable& error) {
        throw Unreachable("cannot reach the control channel of the aggregator at " +
                          std::string(error.what()));
    }
}

}  // namespace

Channel::Channel(const Place& place, const std::optional<std::string>& secret, double seconds)
    : peer_(place.text()), socket_(connected(place, seconds)) {
    if (secret) prove(*secret, seconds);
}

Object Channel::ask(const Object& request, double seconds) {
    const std::string what =
        request.text("request").value_or("a request") + " on the aggregator at " + peer_;
    const double deadline = monotonic_now() + seconds;
    const std::string text = request.line();
    try {
        try {
            socket_.send(codes_ ? codes_->to_server.sign(text) : text, deadline);
        } catch (const Unreachable&) {
            // The aggregator's last lines before it closed the connection are still to be read.
        }
        return answer(what, socket_.receive(deadline, kAnswerBytes));
    } catch (const Unreachable& error) {
        throw Unreachable(what + ": " + error.what());
    }
}

void Channel::heed() {
    const std::string what = "the aggregator at " + peer_;
    try {
        // An answer that comes too late says nothing any more.
        while (const std::optional<std::string> line = socket_.take(kAnswerBytes)) {
            answer(what, *line);
        }
    } catch (const Unreachable& error) {
        throw Unreachable(what + ": " + error.what());
    }
}

Object Channel::answer(const std::string& what, const std::string& line) {
    std::optional<std::string> text = line;
    if (codes_) text = codes_->to_client.check(line);
    const std::optional<Object> found = Object::parse(text ? *text : line);
    if (!codes_ || !text) {
        // Its sender need not be the aggregator: so it is a reason to end, and says nothing more.
        const std::string about = found ? found->text("secret").value_or("") : "";
        if (const char* why = disagreement(about)) throw NotAuthenticated(what + ": " + why);
        if (!text) throw NotAuthenticated(what + ": " + kUnproved);
    }
    if (!found) {
        throw Misbehaved(what + ": the answer is not a JSON object: " + text->substr(0, 80));
    }
    if (!found->boolean("ok").value_or(false)) {
        throw Refused(what + ": " + found->text("error").value_or("no reason given"));
    }
    return *found;
}

void Channel::prove(const std::string& secret, double seconds) {
    const double deadline = monotonic_now() + seconds;
    const std::string nonce = new_nonce();
    const Object hello = Object().set("request", "hello").set("nonce", nonce);
    const std::string theirs = ask(hello, seconds).text("nonce").value_or("");
    if (!is_nonce(theirs)) {
        throw NotAuthenticated("hello on the aggregator at " + peer_ + ": " + kUnproved);
    }
    codes_ = connection_codes(secret, nonce, theirs);
    const auto [host, port] = socket_.peer();
    ask(Object().set("request", "confirm").set("host", host).set("port", std::int64_t{port}),
        deadline - monotonic_now());
}

}  // namespace afflux::control
