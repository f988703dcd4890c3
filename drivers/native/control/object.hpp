// JSON objects on one line: what the control channel's requests and answers are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace afflux::control {

// An object of texts, integers and booleans. Members of other types are read over, as unknown
// fields are ignored.
class Object {
  public:
    Object() = default;

    // Reads one; nothing if the text is not a JSON object.
    static std::optional<Object> parse(std::string_view line);

    Object& set(const std::string& name, std::string_view text);
    Object& set(const std::string& name, const char* text) {
        return set(name, std::string_view(text));
    }
    Object& set(const std::string& name, std::int64_t number);
    Object& set(const std::string& name, bool value);

    // Nothing if there is no such member, or of another type.
    std::optional<std::string> text(const std::string& name) const;
    std::optional<std::int64_t> integer(const std::string& name) const;
    std::optional<bool> boolean(const std::string& name) const;
    bool has(const std::string& name) const { return members_.count(name) != 0; }

    // One line, without its end.
    std::string line() const;

  private:
    struct Member {
        enum class Kind { Text, Integer, Boolean, Other } kind = Kind::Other;
        std::string text{};
        std::int64_t number = 0;  // or 0 and 1 of a boolean
    };
    class Reader;

    std::map<std::string, Member> members_;
};

}  // namespace afflux::control
