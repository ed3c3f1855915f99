package fresh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// Kind is whether a route changes something.
type Kind int

// The kinds of routes. The zero value is none.
const (
	Read  Kind = iota + 1 // changes nothing
	Write                 // changes something, or may
)

// Policy is what a route does when its source is away: [ServeOld], [Refuse] or [LeavePending].
type Policy interface{ fits(Kind) error }

// ServeOld serves the old value, with its age, where it is no older than Within. For routes that read.
type ServeOld struct {
	Within time.Duration // an age, the TTL included; more than 0. The cache's own bound holds as well
}

// Refuse answers that the source is away.
type Refuse struct{}

// LeavePending records the request, and answers that it was taken and what to ask for. For routes that write.
type LeavePending struct {
	// Record keeps the request durably, so that somebody carries it out or finds out what became of it, and returns under what reference to ask. It has a context and a budget of its own, which do not
	// end with the caller's. What was Unknown may have been done: whoever carries it out later goes by its identity, as package operation does.
	Record func(ctx context.Context, p Pending) (ref string, err error)
	// Timeout bounds Record; 0: 5 s.
	Timeout time.Duration
}

// Pending is a request to be recorded.
type Pending struct {
	Route   string
	Request any          // as it was given to [Routes.Write]
	Class   budget.Class // what is known of the request: not sent, refused or unknown
	Cause   error        // why it was not carried out
}

const defaultRecord = 5 * time.Second

func (p ServeOld) fits(k Kind) error {
	switch {
	case k != Read:
		return errors.New("old data is no answer to a write; want Refuse or LeavePending")
	case p.Within <= 0:
		return fmt.Errorf("serves what is no older than %v; want more than 0", p.Within)
	}
	return nil
}

func (Refuse) fits(Kind) error { return nil }

func (p LeavePending) fits(k Kind) error {
	switch {
	case k != Write:
		return errors.New("a read leaves nothing pending; want ServeOld or Refuse")
	case p.Record == nil:
		return errors.New("leaves requests pending that nobody records: Record is nil")
	case p.Timeout < 0 || p.Timeout > maxDuration:
		return fmt.Errorf("a timeout of %v for Record; want 0 to %v", p.Timeout, maxDuration)
	}
	return nil
}

// Route is one way into a service.
type Route struct {
	Name string
	Kind Kind
	// Policy is what happens when the source is away. A route that writes must state one; one that reads and states none refuses.
	Policy Policy
	// Away says whether an error of a write means that the source is away; nil: what [budget.ClassOf] calls not sent or unknown, and a refusal that another attempt may find otherwise. An
	// error that nobody has classified is unknown.
	Away func(error) bool
}

// Routes are a service's routes, each with its policy. Safe for concurrent use.
type Routes struct{ by map[string]Route }

// NewRoutes holds the policy of each route. It returns an error matching [ErrInvalid] for a route without a name or kind, with a name that is there already or a policy that does
// not fit its kind, and for a route that writes and states no policy: a service with such a route does not start.
func NewRoutes(routes ...Route) (*Routes, error) {
	r := &Routes{by: make(map[string]Route, len(routes))}
	for _, route := range routes {
		_, twice := r.by[route.Name]
		switch {
		case route.Name == "" || twice:
			return nil, &InvalidError{"route", fmt.Sprintf("name %q; want one of its own for each", route.Name)}
		case route.Kind != Read && route.Kind != Write:
			return nil, &InvalidError{"route " + route.Name, "it is neither Read nor Write"}
		case route.Policy == nil && route.Kind == Write:
			return nil, &InvalidError{"route " + route.Name, "it writes, and does not say what happens when the source is away; want Refuse or LeavePending"}
		case route.Policy == nil:
			route.Policy = Refuse{}
		}
		switch route.Policy.(type) {
		case ServeOld, Refuse, LeavePending:
		default:
			return nil, &InvalidError{"route " + route.Name, fmt.Sprintf("its policy is a %T; want ServeOld, Refuse or LeavePending, and no pointer", route.Policy)}
		}
		if err := route.Policy.fits(route.Kind); err != nil {
			return nil, &InvalidError{"route " + route.Name, err.Error()}
		}
		r.by[route.Name] = route
	}
	return r, nil
}

func (r *Routes) find(name string, k Kind) (Route, error) {
	route, ok := r.by[name]
	if !ok || route.Kind != k {
		return Route{}, &InvalidError{"route", fmt.Sprintf("%q is no route of this kind", name)}
	}
	return route, nil
}

// Serve answers a route that reads: by get, usually a cache's Get, and by the route's policy where get returns a stale value. A stale value of a route that refuses, or one that is older than
// ServeOld allows, is an [*AwayError] with the value's own cause. Other errors of get are passed on. It returns an error matching [ErrInvalid] for a name that is no route that reads.
func Serve[V any](ctx context.Context, r *Routes, name string, get func(context.Context) (Value[V], error)) (Value[V], error) {
	route, err := r.find(name, Read)
	if err != nil {
		return Value[V]{}, err
	}
	v, err := get(ctx)
	if err != nil || v.State == Fresh {
		return v, err
	}
	if p, ok := route.Policy.(ServeOld); ok && v.Age <= p.Within {
		return v, nil
	}
	if v.Cause == nil {
		v.Cause = errStale
	}
	return Value[V]{}, &AwayError{Route: name, Old: true, Age: v.Age, Cause: v.Cause}
}

// Write answers a route that writes: by do, and by the route's policy where do's error means that the source is away. Other errors of do are passed on: they are the source's answer.
//
// It returns an [*AwayError] where the route refuses, of the same class as do's error; a [*PendingError] where the request was recorded; a [*NotRecordedError] where
// it was to be and could not be; and an error matching [ErrInvalid] for a name that is no route that writes, and then do was not called.
func (r *Routes) Write(ctx context.Context, name string, request any, do func(context.Context) error) error {
	route, err := r.find(name, Write)
	if err != nil {
		return err
	}
	err = do(ctx)
	if err == nil || !route.away(err) {
		return err
	}
	p, ok := route.Policy.(LeavePending)
	if !ok {
		return &AwayError{Route: name, Cause: err}
	}
	timeout := p.Timeout
	if timeout == 0 {
		timeout = defaultRecord
	}
	// What do has used up of the caller's time is not lacking here, and who repeats the request does not repeat this.
	b, failed := budget.Start(budget.WithoutAttempt(context.WithoutCancel(ctx)), timeout, budget.Named("record"))
	if failed != nil {
		return &NotRecordedError{Route: name, Cause: err, Record: failed}
	}
	defer b.End()
	class := budget.ClassOf(err)
	ref, failed := p.Record(b.Context(), Pending{Route: name, Request: request, Class: class, Cause: err})
	if failed != nil {
		return &NotRecordedError{Route: name, Cause: err, Record: failed}
	}
	return &PendingError{Route: name, Ref: ref, Class: class, Cause: err}
}

func (r Route) away(err error) bool {
	if r.Away != nil {
		return r.Away(err)
	}
	if budget.ClassOf(err) != budget.Refused {
		return true
	}
	var e *budget.Error
	return errors.As(err, &e) && (e.Again || e.RetryAfter > 0)
}
