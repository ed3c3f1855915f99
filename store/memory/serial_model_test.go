package memory

import (
	"errors"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// serial is the seed that the core grew from: one object that is coordinator and resource at once, for one
// name, on one manual clock. It holds the whole idea on one page, and a test demands that the core, asked
// about one name, decides as it does. It serves no request.
type serial struct {
	now    time.Duration
	holder string // the owner of the latest grant; empty once it was released
	token  fence.Token
	expiry time.Duration
	value  string // of the resource
}

// at sets the clock, which never goes back.
func (m *serial) at(now time.Duration) error {
	if now < m.now {
		return errStepBack
	}
	m.now = now
	return nil
}

// valid reports whether owner holds under token now. Both are compared: a label may be used again, and the
// expiry itself is too late.
func (m *serial) valid(owner string, token fence.Token) bool {
	return m.holder != "" && m.holder == owner && m.token == token && m.now < m.expiry
}

// acquire grants when nobody holds or the lease has expired, to the same owner as to any other.
func (m *serial) acquire(owner string, ttl time.Duration) (fence.Token, error) {
	if ttl <= 0 {
		return 0, errTTL
	}
	if m.holder != "" && m.now < m.expiry {
		return 0, errHeld
	}
	m.token++
	m.holder, m.expiry = owner, m.now+ttl
	return m.token, nil
}

func (m *serial) renew(owner string, token fence.Token, ttl time.Duration) error {
	if ttl <= 0 {
		return errTTL
	}
	if !m.valid(owner, token) {
		return errNotHolder
	}
	m.expiry = m.now + ttl
	return nil
}

func (m *serial) release(owner string, token fence.Token) error {
	if !m.valid(owner, token) {
		return errNotHolder
	}
	m.holder = ""
	return nil
}

func (m *serial) write(owner string, token fence.Token, value string) error {
	if !m.valid(owner, token) {
		return errNotHolder
	}
	m.value = value
	return nil
}

// What the seed model answers. After each of them nothing has changed.
var (
	errStepBack  = errors.New("the clock never goes back")
	errTTL       = errors.New("a TTL must be positive")
	errHeld      = errors.New("held")
	errNotHolder = errors.New("refused: not the holder")
)
