#include "control/libcrypto.hpp"

#include <dlfcn.h>
#include <sys/random.h>

#include <cerrno>
#include <system_error>

#include "control/errors.hpp"

namespace afflux::control {
namespace {

// As in OpenSSL's hmac.h, evp.h and crypto.h, which 1.1 and 3 have alike.
using Method = const void* (*)();
using Hmac = unsigned char* (*)(const void*, const void*, int, const unsigned char*, std::size_t,
                                unsigned char*, unsigned int*);
using Compare = int (*)(const void*, const void*, std::size_t);

// Opened and not linked: a plugin that needs no secret works without it, and one build serves
// machines with either version.
struct Library {
    Library() {
        void* handle = nullptr;
        for (const char* name : {"libcrypto.so.3", "libcrypto.so.1.1"}) {
            handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
            if (handle != nullptr) break;
        }
        if (handle == nullptr) return;
        method = reinterpret_cast<Method>(dlsym(handle, "EVP_sha256"));
        hmac = reinterpret_cast<Hmac>(dlsym(handle, "HMAC"));
        compare = reinterpret_cast<Compare>(dlsym(handle, "CRYPTO_memcmp"));
    }

    bool complete() const { return method != nullptr && hmac != nullptr && compare != nullptr; }

    Method method = nullptr;
    Hmac hmac = nullptr;
    Compare compare = nullptr;
};

const Library& library() {
    static const Library opened;
    if (!opened.complete()) {
        throw NotAuthenticated(
            "this machine has neither libcrypto.so.3 nor libcrypto.so.1.1: install OpenSSL's "
            "library, such as the package libssl3");
    }
    return opened;
}

}  // namespace

Digest hmac_sha256(std::string_view key, std::string_view text) {
    const Library& crypto = library();
    Digest digest{};
    unsigned int bytes = 0;
    const void* made = crypto.hmac(crypto.method(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   digest.data(), &bytes);
    if (made == nullptr || bytes != digest.size()) {
        throw NotAuthenticated("libcrypto does not make an HMAC with SHA-256");
    }
    return digest;
}

bool equal_in_constant_time(std::string_view one, std::string_view other) {
    return one.size() == other.size() &&
           library().compare(one.data(), other.data(), one.size()) == 0;
}

void fill_random(void* out, std::size_t bytes) {
    // Up to 256 octets come at once, or not at all.
    while (getrandom(out, bytes, 0) != static_cast<ssize_t>(bytes)) {
        if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "getrandom");
    }
}

}  // namespace afflux::control
