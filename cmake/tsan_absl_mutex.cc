// Tells ThreadSanitizer what absl::Mutex does; linked into the tests of the tsan preset alone.
//
// Debian's Abseil is built without it, so every use of a mutex would be reported as a race. The
// calls that our code makes come here first. While the library runs, conditions are not watched:
// it evaluates them on whichever thread gives the mutex up, under a lock that only it knows of.
// What else the library builds on its mutexes (Barrier, BlockingCounter...) stays unknown.
#include <dlfcn.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace {

class Unwatched {
 public:
  Unwatched() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unwatched() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};

// The library's own function of that (mangled) name.
template <typename Function>
Function* Library(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const lock = Library<void(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  {
    const Unwatched unwatched;
    lock(this);
  }
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static auto* const unlock = Library<void(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_release(this);
  const Unwatched unwatched;
  unlock(this);
}

void Mutex::ReaderLock() {
  static auto* const lock = Library<void(Mutex*)>("_ZN4absl7debian35Mutex10ReaderLockEv");
  {
    const Unwatched unwatched;
    lock(this);
  }
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static auto* const unlock = Library<void(Mutex*)>("_ZN4absl7debian35Mutex12ReaderUnlockEv");
  __tsan_release(this);
  const Unwatched unwatched;
  unlock(this);
}

void Mutex::Await(const Condition& condition) {
  static auto* const await =
      Library<void(Mutex*, const Condition&)>("_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
  __tsan_release(this);
  {
    const Unwatched unwatched;
    await(this, condition);
  }
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const await = Library<bool(Mutex*, const Condition&, Duration)>(
      "_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  __tsan_release(this);
  bool met = false;
  {
    const Unwatched unwatched;
    met = await(this, condition, timeout);
  }
  __tsan_acquire(this);
  return met;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static auto* const await = Library<bool(Mutex*, const Condition&, Time)>(
      "_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  __tsan_release(this);
  bool met = false;
  {
    const Unwatched unwatched;
    met = await(this, condition, deadline);
  }
  __tsan_acquire(this);
  return met;
}

void Notification::Notify() {
  static auto* const notify =
      Library<void(Notification*)>("_ZN4absl7debian312Notification6NotifyEv");
  __tsan_release(this);
  notify(this);
}

void Notification::WaitForNotification() const {
  static auto* const wait =
      Library<void(const Notification*)>("_ZNK4absl7debian312Notification19WaitForNotificationEv");
  wait(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static auto* const wait = Library<bool(const Notification*, Duration)>(
      "_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
  const bool notified = wait(this, timeout);
  if (notified) {
    __tsan_acquire(const_cast<Notification*>(this));
  }
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  static auto* const wait = Library<bool(const Notification*, Time)>(
      "_ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE");
  const bool notified = wait(this, deadline);
  if (notified) {
    __tsan_acquire(const_cast<Notification*>(this));
  }
  return notified;
}

void CondVar::Wait(Mutex* mu) {
  static auto* const wait =
      Library<void(CondVar*, Mutex*)>("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mu);
  {
    const Unwatched unwatched;
    wait(this, mu);
  }
  __tsan_acquire(mu);
}

bool CondVar::WaitWithTimeout(Mutex* mu, Duration timeout) {
  static auto* const wait = Library<bool(CondVar*, Mutex*, Duration)>(
      "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mu);
  bool timed_out = false;
  {
    const Unwatched unwatched;
    timed_out = wait(this, mu, timeout);
  }
  __tsan_acquire(mu);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mu, Time deadline) {
  static auto* const wait = Library<bool(CondVar*, Mutex*, Time)>(
      "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mu);
  bool timed_out = false;
  {
    const Unwatched unwatched;
    timed_out = wait(this, mu, deadline);
  }
  __tsan_acquire(mu);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl
