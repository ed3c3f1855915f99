package model

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/fence"
)

// Action is what a step of the story does. The zero value is none.
type Action int

// The actions.
const (
	DoAcquire Action = iota + 1
	DoRenew
	DoWrite
	DoRelease
	DoRead
	DoSetClock
)

// Outcome is what a step must come to. The zero value is none.
type Outcome int

// The outcomes.
const (
	Done     Outcome = iota + 1
	Refused          // nothing is changed
	Rejected         // it makes no sense; nothing is changed
)

// String is the outcome in words.
func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Refused:
		return "refused"
	case Rejected:
		return "rejected as invalid"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// Step is one line of the story.
type Step struct {
	At    int // story seconds since the beginning
	Who   string
	Do    Action
	Grant int    // whose token: the how-manieth grant of the story, from 1; for Acquire the one that is made
	TTL   int    // of Acquire and Renew, in story seconds
	To    int    // of SetClock
	Value string // of Write; of Read what must be read
	Over  bool   // it comes right at the expiry of the lease that is held
	Want  Outcome
	Says  string
}

// StoryTTL is the TTL of every lease in the story, in story seconds.
const StoryTTL = 5

// Story is the story of three owners of one name, in order. A is paused past its expiry, B succeeds twice, C last.
func Story() []Step {
	const ttl = StoryTTL
	return []Step{
		{At: 0, Who: "A", Do: DoAcquire, Grant: 1, TTL: ttl, Want: Done, Says: "A acquires for 5"},
		{At: 2, Who: "A", Do: DoWrite, Grant: 1, Value: "a-1", Want: Done, Says: "A writes a-1"},
		{At: 4, Who: "A", Do: DoRenew, Grant: 1, TTL: ttl, Want: Done, Says: "A renews, until 9"},
		{At: 8, Who: "A", Do: DoWrite, Grant: 1, Value: "a-2", Want: Done, Says: "A writes a-2"},
		{At: 9, Who: "A", Do: DoWrite, Grant: 1, Value: "a-3", Over: true, Want: Refused, Says: "A's write is refused: now >= expiry"},
		{At: 9, Who: "A", Do: DoRenew, Grant: 1, TTL: ttl, Over: true, Want: Refused, Says: "A's renewal is refused: renewing never revives"},
		{At: 10, Who: "B", Do: DoAcquire, Grant: 2, TTL: ttl, Want: Done, Says: "B acquires, under a higher token"},
		{At: 11, Who: "B", Do: DoWrite, Grant: 2, Value: "b-1", Want: Done, Says: "B writes b-1"},
		{At: 12, Who: "B", Do: DoWrite, Grant: 1, Value: "b-x", Want: Refused, Says: "B's write under A's token is refused"},
		{At: 12, Who: "A", Do: DoWrite, Grant: 1, Value: "a-4", Want: Refused, Says: "A's late write is refused"},
		{At: 12, Who: "C", Do: DoAcquire, TTL: ttl, Want: Refused, Says: "C is refused: B holds it"},
		{At: 12, Who: "A", Do: DoRelease, Grant: 1, Want: Refused, Says: "A's release is refused: it frees nothing of B's"},
		{At: 12, Who: "B", Do: DoRelease, Grant: 2, Want: Done, Says: "B releases"},
		{At: 13, Who: "B", Do: DoAcquire, Grant: 3, TTL: ttl, Want: Done, Says: "B acquires again, under a new token"},
		{At: 13, Who: "B", Do: DoRelease, Grant: 2, Want: Refused, Says: "B's delayed release under its old token changes nothing"},
		{At: 13, Who: "B", Do: DoRenew, Grant: 2, TTL: ttl, Want: Refused, Says: "B's delayed renewal under its old token changes nothing"},
		{At: 14, Who: "B", Do: DoWrite, Grant: 3, Value: "b-2", Want: Done, Says: "B writes b-2 under the new token"},
		{At: 14, Who: "B", Do: DoRelease, Grant: 3, Want: Done, Says: "B releases"},
		{At: 14, Who: "C", Do: DoAcquire, Grant: 4, TTL: ttl, Want: Done, Says: "C acquires"},
		{At: 15, Who: "C", Do: DoWrite, Grant: 4, Value: "c-1", Want: Done, Says: "C writes c-1"},
		{At: 15, Who: "C", Do: DoRead, Value: "c-1", Want: Done, Says: "c-1 is what is read"},
		{At: 15, Who: "B", Do: DoAcquire, TTL: 0, Want: Rejected, Says: "a TTL of 0 is an error and changes nothing"},
		{At: 15, Who: "C", Do: DoRenew, Grant: 4, TTL: -1, Want: Rejected, Says: "a renewal of -1 is an error and changes nothing"},
		{At: 15, Who: "C", Do: DoSetClock, To: 14, Want: Rejected, Says: "a step of the clock back to 14 is an error and changes nothing"},
		{At: 15, Who: "C", Do: DoRead, Value: "c-1", Want: Done, Says: "c-1 is still what is read"},
	}
}

// Play runs the steps on s and returns an error that names the first step which comes to something else than it
// says, or changes what it must not. The tokens of the grants, in order, rise strictly.
func Play(s *Seed, steps []Step) ([]fence.Token, error) {
	tokens := []fence.Token{0} // of grant 0: none
	for _, step := range steps {
		if err := s.SetClock(step.At); err != nil {
			return nil, fmt.Errorf("step %q: %w", step.Says, err)
		}
		before := *s
		token, read, err := play(s, step, tokens)
		switch {
		case outcome(err) != step.Want:
			return nil, fmt.Errorf("step %q: it is %s, not %s", step.Says, outcome(err), step.Want)
		case step.Want != Done && *s != before:
			return nil, fmt.Errorf("step %q changed something", step.Says)
		case step.Do == DoRead && read != step.Value:
			return nil, fmt.Errorf("step %q: read %q", step.Says, read)
		}
		if step.Do == DoAcquire && err == nil {
			if token <= tokens[len(tokens)-1] || step.Grant != len(tokens) {
				return nil, fmt.Errorf("step %q: token %d of grant %d after %v", step.Says, token, step.Grant, tokens)
			}
			tokens = append(tokens, token)
		}
	}
	return tokens[1:], nil
}

func play(s *Seed, step Step, tokens []fence.Token) (token fence.Token, read string, err error) {
	if step.Do != DoAcquire {
		token = tokens[step.Grant]
	}
	switch step.Do {
	case DoAcquire:
		token, err = s.Acquire(step.Who, step.TTL)
	case DoRenew:
		err = s.Renew(step.Who, token, step.TTL)
	case DoWrite:
		err = s.Write(step.Who, token, step.Value)
	case DoRelease:
		err = s.Release(step.Who, token)
	case DoRead:
		read = s.Read()
	case DoSetClock:
		err = s.SetClock(step.To)
	}
	return token, read, err
}

func outcome(err error) Outcome {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, ErrInvalid):
		return Rejected
	}
	return Refused
}
