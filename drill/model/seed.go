package model

import "github.com/tenure-go/tenure/fence"

// Seed is the serial model: one object is authority and resource, with one manual clock that never goes back.
// Equality is expired. The zero value is a free lease at time 0. Not safe for concurrent use.
type Seed struct {
	now    int // story seconds
	owner  string
	held   bool // until expiry
	token  fence.Token
	expiry int
	value  string
}

// valid reports whether owner and token are the holder's, and the lease is not over.
func (s *Seed) valid(owner string, token fence.Token) bool {
	return s.held && s.owner == owner && s.token == token && s.now < s.expiry
}

// SetClock moves the clock to now. It returns [ErrInvalid] for a step back.
func (s *Seed) SetClock(now int) error {
	if now < s.now {
		return ErrInvalid
	}
	s.now = now
	return nil
}

// Acquire grants the lease under the next token, with expiry = now + ttl, when nobody holds it or now >= expiry. It
// returns [ErrHeld] otherwise, also to the holder, and [ErrInvalid] for a ttl that is not positive.
func (s *Seed) Acquire(owner string, ttl int) (fence.Token, error) {
	if ttl <= 0 {
		return 0, ErrInvalid
	}
	if s.held && s.now < s.expiry {
		return 0, ErrHeld
	}
	s.owner, s.held, s.token, s.expiry = owner, true, s.token+1, s.now+ttl
	return s.token, nil
}

// Renew sets expiry = now + ttl. It returns [ErrInvalid] for a ttl that is not positive, and [ErrStale].
func (s *Seed) Renew(owner string, token fence.Token, ttl int) error {
	if ttl <= 0 {
		return ErrInvalid
	}
	if !s.valid(owner, token) {
		return ErrStale
	}
	s.expiry = s.now + ttl
	return nil
}

// Release frees the lease, or returns [ErrStale].
func (s *Seed) Release(owner string, token fence.Token) error {
	if !s.valid(owner, token) {
		return ErrStale
	}
	s.held = false
	return nil
}

// Write replaces the value, or returns [ErrStale].
func (s *Seed) Write(owner string, token fence.Token, value string) error {
	if !s.valid(owner, token) {
		return ErrStale
	}
	s.value = value
	return nil
}

// Read returns the value that was written last.
func (s *Seed) Read() string { return s.value }

// Left is how long the holder has left, or 0.
func (s *Seed) Left() int {
	if !s.held || s.now >= s.expiry {
		return 0
	}
	return s.expiry - s.now
}
