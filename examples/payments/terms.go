package payments

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// Terms is what a provider promises, in its documentation or its contract. A promise that is not made is zero. Everything that may be concluded follows from it: so ask, and do not guess.
type Terms struct {
	// Keeps is how long the provider knows an effect by its key: the same key again has no second effect. [operation.Forever]; 0: it does not.
	Keeps time.Duration
	// Closes: an inquiry can close a key in the same step in which it looks. Such a provider keeps its keys for ever.
	Closes bool
	// NotAfter is how long after the first attempt the provider refuses the effect, because each request carries that instant; 0: it knows no such thing. What it proves rests on a look-up that
	// forgets nothing, so that Keeps is for ever.
	NotAfter time.Duration

	// Timeout is how long an attempt, and an inquiry, waits. It is this shop's choice and no promise. Default (0) 10 s.
	Timeout time.Duration
	// Margin is taken off what the provider keeps: for the time that a request may be on its way. Default (0) an hour, or a quarter of Keeps if that is less.
	Margin time.Duration
}

const (
	defaultTimeout = 10 * time.Second
	defaultMargin  = time.Hour
)

// complete fills in the defaults, and says what contradicts itself.
func (t Terms) complete() (Terms, error) {
	if t.Timeout == 0 {
		t.Timeout = defaultTimeout
	}
	if t.Margin == 0 {
		t.Margin = min(defaultMargin, t.Keeps/4)
	}
	switch {
	case t.Keeps < 0 || t.NotAfter < 0 || t.Timeout < 0 || t.Margin < 0:
		return t, fmt.Errorf("%w: a duration is negative", ErrTerms)
	case t.Closes && t.Keeps != operation.Forever:
		return t, fmt.Errorf("%w: who forgets a key cannot have closed it", ErrTerms)
	case t.NotAfter > 0 && t.Keeps != operation.Forever:
		return t, fmt.Errorf("%w: a look-up that forgets keys cannot say that nothing happened before the instant", ErrTerms)
	case t.Keeps > 0 && t.Margin >= t.Keeps:
		return t, fmt.Errorf("%w: a margin of %v leaves nothing of %v", ErrTerms, t.Margin, t.Keeps)
	}
	return t, nil
}

// window is how long after the first attempt the same key may be sent again.
func (t Terms) window() time.Duration {
	if t.Keeps == operation.Forever || t.Keeps == 0 {
		return t.Keeps
	}
	return t.Keeps - t.Margin
}
