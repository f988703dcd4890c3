// Files of this process that a forked one does not keep.
//
// A connection lasts as long as any process has its socket. A copy in a forked process, such as a
// data loader's, would hide from the others that this process has ended.
#pragma once

namespace afflux::control {

// From now on a forked process closes this file at once.
void own(int number);

// From now on it is somebody else's.
void disown(int number);

// Closes it, in the process that owns it only: in a forked one the number may be another file's.
void close_own(int number);

}  // namespace afflux::control
