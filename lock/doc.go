// Package lock decides which of two copies of a program serves, by flock(2) on
// a file of the host, and tells who holds such a lock and who waits for it.
//
// The guarded program itself holds the lock: lock-exec takes it and then
// becomes the program. The kernel gives it back when the program ends, however
// that comes about, so there is no stale lock to break, and it wakes the next
// waiter at once, so nothing polls.
//
// A lock file is never removed, renamed or replaced. A lock belongs to an
// inode, so whoever opened the path before and after such a change would each
// hold a lock. Its content means nothing. Its modification time is that of the
// last acquisition, for people; programs read the one in the holder's
// descriptor, see [HeldBy].
//
// Everything here is safe for concurrent use.
package lock
