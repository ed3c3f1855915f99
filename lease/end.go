package lease

import "fmt"

// End says how a session or an acquisition ended. The zero value is no end.
type End int

// The ends.
const (
	EndReleased   End = iota + 1 // released by its holder
	EndClosed                    // its session was closed
	EndExpired                   // the session's TTL or the acquisition's MaxHold passed
	EndSuperseded                // its MaxHold passed and a successor was granted the name
	EndRevoked                   // an operator took it away
	EndForgotten                 // over, or never known, and how was not kept
)

// String is the word that error texts, JSON and stores use.
func (e End) String() string {
	switch e {
	case EndReleased:
		return "released"
	case EndClosed:
		return "closed"
	case EndExpired:
		return "expired"
	case EndSuperseded:
		return "superseded"
	case EndRevoked:
		return "revoked"
	case EndForgotten:
		return "forgotten"
	}
	return fmt.Sprintf("End(%d)", int(e))
}

// MarshalText writes the word; the zero End is the empty text.
func (e End) MarshalText() ([]byte, error) {
	if e == 0 {
		return nil, nil
	}
	return []byte(e.String()), nil
}
