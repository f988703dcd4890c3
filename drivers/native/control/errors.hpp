// Why a control channel cannot do what it was asked.
#pragma once

#include <stdexcept>

namespace afflux::control {

class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Nobody answers: wrong address, dead, or cut off.
class Unreachable : public Error {
  public:
    using Error::Error;
};

// The host has refused the connection: nobody listens there.
class NobodyListens : public Unreachable {
  public:
    using Unreachable::Unreachable;
};

// The peer answered, and refused.
class Refused : public Error {
  public:
    using Error::Error;
};

// The two ends could not prove to each other that they know one secret.
class NotAuthenticated : public Error {
  public:
    using Error::Error;
};

// An answer makes no sense.
class Misbehaved : public Error {
  public:
    using Error::Error;
};

}  // namespace afflux::control
