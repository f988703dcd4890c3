#include "control/object.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <stdexcept>

namespace afflux::control {
namespace {

// Values within values; none of the channel has more than three.
constexpr int kDepth = 16;

struct NotJson : std::runtime_error {
    NotJson() : std::runtime_error("not JSON") {}
};

void append_utf8(std::string& out, std::uint32_t code) {
    const auto put = [&out](std::uint32_t octet) { out += static_cast<char>(octet); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xC0 | code >> 6);
        put(0x80 | (code & 63));
    } else if (code < 0x10000) {
        put(0xE0 | code >> 12);
        put(0x80 | (code >> 6 & 63));
        put(0x80 | (code & 63));
    } else {
        put(0xF0 | code >> 18);
        put(0x80 | (code >> 12 & 63));
        put(0x80 | (code >> 6 & 63));
        put(0x80 | (code & 63));
    }
}

std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char each : text) {
        if (each == '"' || each == '\\') {
            out += '\\';
            out += each;
        } else if (static_cast<unsigned char>(each) < 0x20) {
            std::array<char, 8> escaped;
            std::snprintf(escaped.data(), escaped.size(), "\\u%04x", each);
            out += escaped.data();
        } else {
            out += each;
        }
    }
    return out + '"';
}

}  // namespace

class Object::Reader {
  public:
    explicit Reader(std::string_view text) : rest_(text) {}

    Object whole() {
        Object made = object(0);
        skip_space();
        if (!rest_.empty()) throw NotJson();
        return made;
    }

  private:
    char peek() const {
        if (rest_.empty()) throw NotJson();
        return rest_.front();
    }
    char next() {
        const char each = peek();
        rest_.remove_prefix(1);
        return each;
    }
    void skip_space() {
        while (!rest_.empty() && std::string_view(" \t\r\n").find(rest_.front()) != rest_.npos) {
            rest_.remove_prefix(1);
        }
    }
    bool take(char wanted) {
        skip_space();
        if (peek() != wanted) return false;
        next();
        return true;
    }
    void expect(std::string_view word) {
        if (rest_.substr(0, word.size()) != word) throw NotJson();
        rest_.remove_prefix(word.size());
    }

    Object object(int depth) {
        Object made;
        if (depth > kDepth || !take('{')) throw NotJson();
        if (take('}')) return made;
        do {
            skip_space();
            std::string name = string();
            if (!take(':')) throw NotJson();
            made.members_[std::move(name)] = value(depth);
        } while (take(','));
        if (!take('}')) throw NotJson();
        return made;
    }

    void array(int depth) {
        if (depth > kDepth || !take('[')) throw NotJson();
        if (take(']')) return;
        do {
            value(depth);
        } while (take(','));
        if (!take(']')) throw NotJson();
    }

    Member value(int depth) {
        skip_space();
        switch (peek()) {
            case '"':
                return {.kind = Member::Kind::Text, .text = string()};
            case '{':
                object(depth + 1);
                return {};
            case '[':
                array(depth + 1);
                return {};
            case 't':
                expect("true");
                return {.kind = Member::Kind::Boolean, .number = 1};
            case 'f':
                expect("false");
                return {.kind = Member::Kind::Boolean};
            case 'n':
                expect("null");
                return {};
            default:
                return number();
        }
    }

    Member number() {
        Member made{.kind = Member::Kind::Integer};
        const char* const end = rest_.data() + rest_.size();
        const auto [stop, error] = std::from_chars(rest_.data(), end, made.number);
        const bool fraction = stop != end && std::string_view(".eE").find(*stop) != rest_.npos;
        if (error == std::errc() && !fraction) {
            rest_.remove_prefix(static_cast<std::size_t>(stop - rest_.data()));
            return made;
        }
        double unused = 0;
        const auto [last, failed] = std::from_chars(rest_.data(), end, unused);
        if (failed == std::errc::invalid_argument) throw NotJson();
        rest_.remove_prefix(static_cast<std::size_t>(last - rest_.data()));
        return {};
    }

    std::string string() {
        std::string out;
        if (next() != '"') throw NotJson();
        for (char each = next(); each != '"'; each = next()) {
            if (static_cast<unsigned char>(each) < 0x20) throw NotJson();
            if (each != '\\') {
                out += each;
                continue;
            }
            const char kind = next();
            constexpr std::string_view kKinds = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
            const std::size_t found = kKinds.find(kind);
            if (found != kKinds.npos) {
                out += kMeant[found];
            } else if (kind == 'u') {
                append_utf8(out, escaped());
            } else {
                throw NotJson();
            }
        }
        return out;
    }

    std::uint32_t unit() {
        std::uint32_t code = 0;
        if (rest_.size() < 4) throw NotJson();
        const char* const first = rest_.data();
        if (std::from_chars(first, first + 4, code, 16).ptr != first + 4) throw NotJson();
        rest_.remove_prefix(4);
        return code;
    }

    // The character of one escape, or of the two that write one beyond U+FFFF.
    std::uint32_t escaped() {
        const std::uint32_t high = unit();
        if (high < 0xD800 || high > 0xDFFF) return high;
        expect("\\u");
        const std::uint32_t low = unit();
        if (high > 0xDBFF || low < 0xDC00 || low > 0xDFFF) throw NotJson();
        return 0x10000 + ((high - 0xD800) << 10 | (low - 0xDC00));
    }

    std::string_view rest_;
};

std::optional<Object> Object::parse(std::string_view line) {
    try {
        return Reader(line).whole();
    } catch (const NotJson&) {
        return std::nullopt;
    }
}

Object& Object::set(const std::string& name, std::string_view text) {
    members_[name] = {.kind = Member::Kind::Text, .text = std::string(text)};
    return *this;
}

Object& Object::set(const std::string& name, std::int64_t number) {
    members_[name] = {.kind = Member::Kind::Integer, .number = number};
    return *this;
}

Object& Object::set(const std::string& name, bool value) {
    members_[name] = {.kind = Member::Kind::Boolean, .number = value ? 1 : 0};
    return *this;
}

std::optional<std::string> Object::text(const std::string& name) const {
    const auto found = members_.find(name);
    if (found == members_.end() || found->second.kind != Member::Kind::Text) return std::nullopt;
    return found->second.text;
}

std::optional<std::int64_t> Object::integer(const std::string& name) const {
    const auto found = members_.find(name);
    if (found == members_.end() || found->second.kind != Member::Kind::Integer) return std::nullopt;
    return found->second.number;
}

std::optional<bool> Object::boolean(const std::string& name) const {
    const auto found = members_.find(name);
    if (found == members_.end() || found->second.kind != Member::Kind::Boolean) return std::nullopt;
    return found->second.number != 0;
}

std::string Object::line() const {
    std::string out = "{";
    for (const auto& [name, member] : members_) {
        if (out.size() > 1) out += ", ";
        out += quoted(name) + ": ";
        if (member.kind == Member::Kind::Text) {
            out += quoted(member.text);
        } else if (member.kind == Member::Kind::Boolean) {
            out += member.number != 0 ? "true" : "false";
        } else {
            out += std::to_string(member.number);
        }
    }
    return out + "}";
}

}  // namespace afflux::control
