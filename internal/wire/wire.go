// Package wire says what the contracts' values and errors are as messages of api/tenure/v1, in both directions, for the server and the client: what one writes the other reads.
//
// Every error of a contract crosses as a Fault with its facts, so that errors.Is and errors.As answer on the far side as they would beside the store. Durations cross, instants do not, but for the one that is meant for a provider.
package wire

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tenure-go/tenure/fence"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
)

// HeaderAuthority names the authority that a call is meant for. A server of another one answers "unavailable": nothing was applied.
const HeaderAuthority = "Tenure-Authority"

// duration is nil for 0, which all fields but a TTL take for "none".
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// ID is "" for the zero id.
func ID(id fence.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// ParseID is the zero id for "".
func ParseID(text string) (fence.ID, error) {
	if text == "" {
		return fence.ID{}, nil
	}
	return fence.ParseID(text)
}

// Claim as a message.
func Claim(c fence.Claim) *v1.Claim {
	return &v1.Claim{Authority: ID(c.Authority), Name: c.Name, Acquisition: ID(c.Acquisition), Token: int64(c.Token)}
}

// ParseClaim returns an error matching [fence.ErrInvalid] where an id is none. The rest is the resource's to check.
func ParseClaim(m *v1.Claim) (fence.Claim, error) {
	authority, err := ParseID(m.GetAuthority())
	if err != nil {
		return fence.Claim{}, err
	}
	acquisition, err := ParseID(m.GetAcquisition())
	if err != nil {
		return fence.Claim{}, err
	}
	return fence.Claim{Authority: authority, Name: m.GetName(), Acquisition: acquisition, Token: fence.Token(m.GetToken())}, nil
}

// All converts each.
func All[In, Out any](in []In, f func(In) Out) []Out {
	if in == nil {
		return nil
	}
	out := make([]Out, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}

// TryAll converts each, or returns the first error.
func TryAll[In, Out any](in []In, f func(In) (Out, error)) ([]Out, error) {
	if in == nil {
		return nil, nil
	}
	out := make([]Out, len(in))
	for i := range in {
		var err error
		if out[i], err = f(in[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// span is the duration that a message carries, or an error: one that time.Duration cannot hold is not cut.
func span(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, err
	}
	got := d.AsDuration()
	if back := durationpb.New(got); back.Seconds != d.Seconds || back.Nanos != d.Nanos {
		return 0, errors.New("longer than 292 years")
	}
	return got, nil
}

// reader reads fields one after the other and keeps the first problem.
type reader struct {
	field, problem string
}

func (r *reader) fail(field string, err error) {
	if err != nil && r.field == "" {
		r.field, r.problem = field, err.Error()
	}
}

func (r *reader) id(field, text string) fence.ID {
	id, err := ParseID(text)
	r.fail(field, err)
	return id
}

func (r *reader) span(field string, d *durationpb.Duration) time.Duration {
	got, err := span(d)
	r.fail(field, err)
	return got
}

// Span is the duration that a field carries, or an error that names the field.
func Span(field string, d *durationpb.Duration) (time.Duration, error) {
	got, err := span(d)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", field, err)
	}
	return got, nil
}

// Int32 is n, or the nearest that an int32 holds: both are over every limit.
func Int32(n int) int32 {
	return int32(min(max(n, math.MinInt32), math.MaxInt32))
}
