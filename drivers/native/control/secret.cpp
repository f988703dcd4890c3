#include "control/secret.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace afflux::control {
namespace {

// Somebody who has seen a connection may try secrets against it at home; 128 random bits withstand
// that.
constexpr std::size_t kLeast = 16, kMost = 1024;

std::string checked(const std::string& secret, const std::string& what) {
    constexpr const char* kSpace = " \t\r\n\v\f";
    const std::size_t first = secret.find_first_not_of(kSpace);
    const std::size_t last = secret.find_last_not_of(kSpace);
    const std::string plain = first == secret.npos ? "" : secret.substr(first, last - first + 1);
    if (plain.size() < kLeast || plain.size() > kMost) {
        throw std::invalid_argument(what + " must have " + std::to_string(kLeast) + " to " +
                                    std::to_string(kMost) + " bytes, not " +
                                    std::to_string(plain.size()) +
                                    ": openssl rand -hex 32 makes a good one");
    }
    return plain;
}

std::string private_text(const std::string& path) {
    // A FIFO would wait for its writer.
    const int number = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (number < 0) throw std::invalid_argument(path + ": " + std::strerror(errno));
    struct Closer {
        int number;
        ~Closer() { ::close(number); }
    } const closer{number};
    // Of the file that is open, whatever has its name by now.
    struct stat status{};
    if (fstat(number, &status) != 0 || !S_ISREG(status.st_mode)) {
        throw std::invalid_argument(path + " is not a regular file");
    }
    if ((status.st_mode & 077) != 0) {
        throw std::invalid_argument(path + " may be used by others than its owner: chmod 600 " +
                                    path);
    }
    if (status.st_uid != geteuid() && status.st_uid != 0) {
        throw std::invalid_argument(path + " belongs to user " + std::to_string(status.st_uid) +
                                    ", not to " + std::to_string(geteuid()));
    }
    std::array<char, kMost + 2> octets;
    const ssize_t count = ::read(number, octets.data(), octets.size());
    if (count < 0) throw std::invalid_argument(path + ": " + std::strerror(errno));
    return {octets.data(), static_cast<std::size_t>(count)};
}

}  // namespace

std::optional<std::string> find_secret(const std::optional<std::string>& file,
                                       const std::optional<std::string>& text) {
    if (file && text) {
        throw std::invalid_argument(
            "AFFLUX_SECRET and AFFLUX_SECRET_FILE are both set: unset one of them");
    }
    if (file) return checked(private_text(*file), *file);
    if (text) return checked(*text, "a secret");
    return std::nullopt;
}

}  // namespace afflux::control
