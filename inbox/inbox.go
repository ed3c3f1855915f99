// Package inbox makes a message that is delivered more than once have its effect once, in a consumer whose effect is in a database.
//
// The consumer notes the message's id and does its work in one transaction: the second delivery finds the note and does nothing. The notes are kept for a time that is longer than any redelivery may take; what comes
// later than that is done again. So a redelivery that comes later than the window, but while its note is still kept, does nothing, and is counted: then the window is too short for this system, and nothing has happened yet.
//
// An effect outside that database (a mail, a charge) is not made once by this: see package operation.
package inbox

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits and defaults.
const (
	MaxConsumer  = 256 // bytes of a consumer's name
	MaxMessageID = 512 // bytes of a message's id
	MinWindow    = time.Minute
	MaxWindow    = 366 * 24 * time.Hour
	MaxPrune     = 10_000

	// DefaultWindow is how late a redelivery is expected.
	DefaultWindow = 7 * 24 * time.Hour
)

// Options says what an inbox expects.
type Options struct {
	Window time.Duration // how late a redelivery may come: MinWindow to MaxWindow; 0: DefaultWindow
}

// Check fills in what is not set, and returns an [*InvalidError] for what makes no sense.
func (o *Options) Check() error {
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	if o.Window < MinWindow || o.Window > MaxWindow {
		return &InvalidError{"window", fmt.Sprintf("%v; want %v to %v", o.Window, MinWindow, MaxWindow)}
	}
	return nil
}

// Result says what a delivery was.
type Result struct {
	Repeated bool          // it was noted before, and nothing was done
	Age      time.Duration // since it was noted, by the store's clock; 0 for a first one
	Late     bool          // repeated, and later than the window
}

// Stats counts deliveries since the process began.
type Stats struct {
	First    int64 // done, as far as their transactions committed
	Repeated int64 // not done, the late ones included
	Late     int64 // of these, later than the window: have it longer, and prune later
}

// Store is what a store does besides taking part in a consumer's transaction.
//
// The other part, Once(ctx, tx, consumer, messageID, fn), is each store's own, because the transaction is. It notes the message in tx and calls fn if it was not noted before. If fn fails, or panics, the note is taken back and its error
// returned, so that a transaction which is committed all the same has no note without the effect. Two at once with one message: the second waits until the transaction of the first has ended.
type Store interface {
	// Prune forgets at most limit notes older than keep, which is at least the window, and returns how many. A message that comes again afterwards is done again. It returns an [*InvalidError] for a shorter keep; an error matching [ErrUnknown] or
	// [ErrUnavailable] where the store could not be asked: the same call again is right.
	Prune(ctx context.Context, keep time.Duration, limit int) (int, error)

	// Stats counts this process's deliveries. It is safe for concurrent use, and so is Prune.
	Stats() Stats
}

// CheckOnce returns an [*InvalidError] for names that no store accepts.
func CheckOnce(consumer, messageID string) error {
	if err := checkText("consumer", consumer, MaxConsumer); err != nil {
		return err
	}
	return checkText("message id", messageID, MaxMessageID)
}

// CheckPrune returns an [*InvalidError] for what no store forgets.
func (o *Options) CheckPrune(keep time.Duration, limit int) error {
	if keep < o.Window {
		return &InvalidError{"keep", fmt.Sprintf("%v is shorter than the window, %v", keep, o.Window)}
	}
	if limit < 1 || limit > MaxPrune {
		return &InvalidError{"limit", fmt.Sprintf("%d; want 1 to %d", limit, MaxPrune)}
	}
	return nil
}

func checkText(field, text string, most int) error {
	switch {
	case text == "":
		return &InvalidError{field, "empty"}
	case len(text) > most:
		return &InvalidError{field, fmt.Sprintf("%d bytes; at most %d", len(text), most)}
	case !utf8.ValidString(text):
		return &InvalidError{field, "not UTF-8"}
	case strings.ContainsFunc(text, unicode.IsControl):
		return &InvalidError{field, fmt.Sprintf("%q has a control character", text)}
	}
	return nil
}
