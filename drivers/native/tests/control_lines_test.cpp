// The lines of the control channel: objects, codes and secrets.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "control/errors.hpp"
#include "control/libcrypto.hpp"
#include "control/line_codes.hpp"
#include "control/object.hpp"
#include "control/secret.hpp"
#include "tests/check.hpp"

using namespace afflux::control;

namespace {

void test_objects_are_read() {
    const auto found = Object::parse(
        R"( {"ok" : true, "none":null, "port": 4700, "key":"00f1", "least":-9223372036854775808,
           "share": 0.5, "much": 1e300, "list":[1,"a",{"b":[]}], "within": {"port": 1},
           "text": "a\"\\\/\b\f\n\r\t\u00e9\u20ac\ud83d\ude00"} )");
    CHECK(found);
    CHECK(found->boolean("ok") == true);
    CHECK(found->integer("port") == 4700);
    CHECK(found->integer("least") == INT64_MIN);
    CHECK(found->text("key") == "00f1");
    CHECK(found->text("text") == "a\"\\/\b\f\n\r\t\u00e9\u20ac\U0001F600");
    for (const char* each : {"none", "share", "much", "list", "within"}) {
        CHECK(found->has(each) && !found->integer(each) && !found->text(each));
    }
    CHECK(!found->integer("ok") && !found->boolean("port") && !found->has("other"));
}

void test_what_is_no_object_is_none() {
    for (const char* each :
         {"", "{", "[]", "1", "{}x", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{\"a\":tru}",
          "{\"a\":\"\\x\"}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\\ud800\\u0041\"}", "{\"a\":\"\n\"}",
          "{\"a\":-}", "{\"a\":01x}", "{\"a\":[1,]}", "{\"a\" 1}"}) {
        CHECK(!Object::parse(each));
    }
    // Values within values, without an end: no recursion without one.
    CHECK(!Object::parse("{\"a\":" + std::string(100'000, '[')));
}

void test_objects_are_written_as_they_are_read() {
    const std::string text = "quotes \", \\, \x01 and \n, \xc3\xa9";
    const Object made = Object().set("text", text).set("number", std::int64_t{-7}).set("yes", true);
    const auto found = Object::parse(made.line());
    CHECK(found && found->text("text") == text);
    CHECK(found->integer("number") == -7 && found->boolean("yes") == true);
    CHECK(made.line().find('\n') == std::string::npos);
}

// Computed with Python's hmac.
void test_codes_are_those_of_the_protocol() {
    const std::string secret = "0123456789abcdef";
    const std::string nonces[] = {std::string(32, '1'), std::string(32, 'a')};
    LineCodes codes = connection_codes(secret, nonces[0], nonces[1]);
    const std::string line = codes.to_server.sign("{\"request\": \"counters\"}");
    CHECK(line ==
          "d04ddb14a4f373d4051ac42581aace8b9eb93ef4fda35eb907c56629f70c70c9 "
          "{\"request\": \"counters\"}");
}

void test_a_line_fits_once_and_in_its_place() {
    const auto both = [] {
        return connection_codes("0123456789abcdef", std::string(32, '1'), std::string(32, 'a'));
    };
    LineCodes ours = both(), theirs = both();
    const std::string first = ours.to_server.sign("a"), second = ours.to_server.sign("a");
    CHECK(first != second);
    CHECK(theirs.to_server.check(first) == "a");
    CHECK(!theirs.to_server.check(first));
    LineCodes late = both(), back = both(), changed = both();
    CHECK(!late.to_server.check(second));
    CHECK(!back.to_client.check(first));
    std::string other = first;
    other.back() = 'b';
    CHECK(!changed.to_server.check(other));
    CHECK(!both().to_server.check("a") && !both().to_server.check(""));
    CHECK(is_nonce(new_nonce()) && new_nonce() != new_nonce());
    CHECK(!is_nonce("A" + std::string(31, '1')) && !is_nonce(""));
}

void test_secrets() {
    const std::string path = "secret." + std::to_string(getpid());
    const auto write = [&path](const char* text, unsigned mode) {
        std::FILE* const file = std::fopen(path.c_str(), "w");
        CHECK(file != nullptr);
        std::fputs(text, file);
        std::fclose(file);
        CHECK(chmod(path.c_str(), mode) == 0);
    };
    write("  0123456789abcdef\n", 0600);
    CHECK(find_secret(path, std::nullopt) == "0123456789abcdef");
    CHECK(find_secret(std::nullopt, "0123456789abcdef ") == "0123456789abcdef");
    CHECK(!find_secret(std::nullopt, std::nullopt));
    CHECK_THROWS(std::invalid_argument, find_secret(path, "0123456789abcdef"));
    CHECK_THROWS(std::invalid_argument, find_secret(std::nullopt, "short"));
    CHECK(chmod(path.c_str(), 0640) == 0);
    CHECK_THROWS(std::invalid_argument, find_secret(path, std::nullopt));
    write("short", 0600);
    CHECK_THROWS(std::invalid_argument, find_secret(path, std::nullopt));
    unlink(path.c_str());
    CHECK_THROWS(std::invalid_argument, find_secret(path, std::nullopt));
    CHECK_THROWS(std::invalid_argument, find_secret(".", std::nullopt));
}

}  // namespace

int main() {
    test_objects_are_read();
    test_what_is_no_object_is_none();
    test_objects_are_written_as_they_are_read();
    test_secrets();
    try {
        hmac_sha256("", "");
    } catch (const NotAuthenticated& error) {
        std::printf("codes are not tested: %s\n", error.what());
        return 0;
    }
    test_codes_are_those_of_the_protocol();
    test_a_line_fits_once_and_in_its_place();
}
