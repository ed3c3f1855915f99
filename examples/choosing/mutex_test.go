package choosing_test

import (
	"runtime"
	"sync"
	"testing"
)

// ended runs fn in a goroutine, also one that ends itself, and returns when that is over.
func ended(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
}

// Nothing but Unlock frees a mutex, whoever calls it. That the goroutine which locked it has ended, or hangs, is not noticed.
func TestMutexIsFreedByUnlockAlone(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(*sync.Mutex){
		"returned": func(mu *sync.Mutex) { mu.Lock() },
		"exited":   func(mu *sync.Mutex) { mu.Lock(); runtime.Goexit() },
		"panicked": func(mu *sync.Mutex) {
			defer func() { _ = recover() }()
			mu.Lock()
			panic("in the middle of the work")
		},
	} {
		var mu sync.Mutex
		ended(func() { lock(&mu) })
		if mu.TryLock() {
			t.Errorf("%s: the mutex was freed", name)
		}
		mu.Unlock() // by a goroutine that never locked it
		if !mu.TryLock() {
			t.Errorf("%s: the mutex is still locked after Unlock", name)
		}
	}
}

func TestMutexOfAGoroutineThatHangsStaysLocked(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	held, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		mu.Lock()
		defer mu.Unlock()
		close(held)
		<-goOn // for an answer, say, that never comes
	}()
	<-held
	if mu.TryLock() {
		t.Error("the mutex was freed")
	}
	close(goOn)
	<-done
	if !mu.TryLock() {
		t.Error("the mutex is locked by nobody")
	}
}

// Two variables are two mutexes: a second process has another one, whatever it is called there.
func TestMutexExcludesWhoHasTheSameVariable(t *testing.T) {
	t.Parallel()
	type worker struct{ mu sync.Mutex }
	var a, b worker
	a.mu.Lock()
	if !b.mu.TryLock() {
		t.Error("one mutex locks another")
	}
	if a.mu.TryLock() {
		t.Error("a mutex was locked twice, by the goroutine that has it")
	}
}

func TestRWMutexIsShared(t *testing.T) {
	t.Parallel()
	var mu sync.RWMutex
	mu.RLock()
	if !mu.TryRLock() {
		t.Error("readers exclude each other")
	}
	if mu.TryLock() {
		t.Error("a writer came in beside readers")
	}
}

func TestMutexDoesNotStopCodeThatIgnoresIt(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	balance := 100
	mu.Lock()
	ended(func() { balance = 0 }) // it never heard of mu
	defer mu.Unlock()
	if balance != 0 {
		t.Error("the write did not happen")
	}
}

// TryLock and a wait with a bound end for the one who waits. The holder is not touched by it.
func TestMutexGivingUpFreesNothing(t *testing.T) {
	t.Parallel()
	place := make(chan struct{}, 1) // a mutex that can be waited for with a bound
	place <- struct{}{}
	bound := t.Context()
	gaveUp := make(chan struct{})
	close(gaveUp) // the bound has passed
	select {
	case place <- struct{}{}:
		t.Error("two hold it")
	case <-bound.Done():
		t.Error("the test is over")
	case <-gaveUp:
	}
	if len(place) != 1 {
		t.Error("giving up freed it")
	}
	var mu sync.Mutex
	mu.Lock()
	for range 3 {
		if mu.TryLock() {
			t.Error("two hold it")
		}
	}
	mu.Unlock()
}
