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

var endNames = [...]string{
	EndReleased: "released", EndClosed: "closed", EndExpired: "expired", EndSuperseded: "superseded",
	EndRevoked: "revoked", EndForgotten: "forgotten",
}

// String is the word that error texts, JSON and stores use.
func (e End) String() string {
	if e > 0 && int(e) < len(endNames) {
		return endNames[e]
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
