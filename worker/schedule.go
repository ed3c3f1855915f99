package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/tenure-go/tenure/operation"
)

// Missed says what becomes of occurrences whose time came while nobody looked. The zero value is [Latest].
type Missed int

// What may become of them.
const (
	Latest Missed = iota // the latest one is submitted, if it is not older than Within; earlier ones are left out
	Skip                 // none is: only what comes due while the scheduler runs, or came due in the minute before it looked
)

const (
	defaultWithin = time.Hour
	maxWithin     = operation.MinForget // an operation that was forgotten would be submitted again
	lookEvery     = 15 * time.Second    // a step of the wall clock, or a suspend, is noticed by then
	skipWithin    = time.Minute
	// OccurrenceLayout is the time of an occurrence in the id of its operation, in UTC.
	OccurrenceLayout = "2006-01-02T15:04Z"
)

// Schedule submits one operation at each of its times. The operation's id is NAME@TIME, with the time in UTC to the minute, so that any number of hosts with the same schedule make one operation of an
// occurrence, and one that was done is not done again by another host. What runs is decided by the wall clock of the host that looks; what was done is not: that is the operation's record.
type Schedule struct {
	Name string // of at most 200 bytes; the same on every host
	// Cron is five fields: minute, hour, day of the month, month and weekday; or @hourly, @daily, @weekly, @monthly, @yearly. Where both days are restricted, either of them suffices, as in crontab(5).
	Cron string
	// Zone is whose times these are. Default (nil): UTC, which no change to or from summer time moves; the host's own zone is never used. With a zone that has such changes: a time that stands in the hour that is left out
	// occurs once, as much later as clocks were put on; a time that stands in the hour that comes twice occurs twice, as two occurrences.
	Zone *time.Location
	// Make makes the submission of an occurrence. Its ID is filled in. [operation.Kind.Request] makes one.
	Make func(at time.Time) (operation.SubmitRequest, error)
	// Missed is what becomes of occurrences that nobody looked for in time; Within is how far back [Latest] looks. Default (0) 1 h; most 24 h, for which every store knows what was done.
	Missed Missed
	Within time.Duration
}

// OccurrenceID is the id of the operation that an occurrence is.
func OccurrenceID(name string, at time.Time) string {
	return name + "@" + at.UTC().Format(OccurrenceLayout)
}

// Submitter is what a scheduler needs of a store of operations.
type Submitter interface {
	Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error)
}

// SchedulerOptions set up a scheduler. The zero value is ready.
type SchedulerOptions struct {
	// Now is the wall clock. Default (nil) time.Now.
	Now    func() time.Time
	Logger *slog.Logger // receives failures to submit; default (nil) nowhere
	// OnSubmitted is told of each occurrence that this scheduler has submitted, also of one that another had submitted before (Known). May be nil.
	OnSubmitted func(name string, at time.Time, s operation.Submitted)
}

// Scheduler submits the occurrences of its schedules. Any number of hosts may run one with the same schedules.
type Scheduler struct {
	store Submitter
	o     SchedulerOptions
	all   []*planned
}

type planned struct {
	Schedule
	times cron.Schedule
	done  time.Time     // the latest occurrence that was submitted or left out
	pause time.Duration // after a failure
	retry time.Time
}

// NewScheduler returns an error matching [ErrInvalid] for a schedule that makes no sense, or that has no time within the next five years.
func NewScheduler(store Submitter, o SchedulerOptions, all ...Schedule) (*Scheduler, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler{store: store, o: o}
	names := map[string]bool{}
	for _, one := range all {
		p, err := plan(one, o.Now())
		if err != nil {
			return nil, err
		}
		if names[one.Name] {
			return nil, &InvalidError{fmt.Sprintf("the schedule %q", one.Name), "name", "twice"}
		}
		names[one.Name] = true
		s.all = append(s.all, p)
	}
	return s, nil
}

func plan(s Schedule, now time.Time) (*planned, error) {
	set(&s.Within, defaultWithin)
	if s.Zone == nil {
		s.Zone = time.UTC
	}
	bad := func(field, format string, args ...any) (*planned, error) {
		return nil, &InvalidError{fmt.Sprintf("the schedule %q", s.Name), field, fmt.Sprintf(format, args...)}
	}
	switch {
	case operation.CheckID(s.Name) != nil || len(s.Name) > 200:
		return bad("name", "want 1 to 200 bytes without control characters")
	case s.Make == nil:
		return bad("make", "nil")
	case s.Missed != Latest && s.Missed != Skip:
		return bad("missed", "%d", int(s.Missed))
	case s.Within < time.Minute || s.Within > maxWithin:
		return bad("within", "%v; want 0 for %v, or 1m to %v", s.Within, defaultWithin, maxWithin)
	case strings.Contains(s.Cron, "TZ="):
		return bad("cron", "%q names a zone; that is what Zone is for", s.Cron)
	}
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(s.Cron)
	if err != nil {
		return bad("cron", "%v", err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return bad("cron", "%q counts from when it is started, which is another time on every host", s.Cron)
	}
	spec.Location = s.Zone
	spec.DowOrDom = true
	if spec.Next(now).IsZero() {
		return bad("cron", "%q has no time within the next five years", s.Cron)
	}
	return &planned{Schedule: s, times: spec}, nil
}

// Run submits until ctx ends, and returns nil. A submission that fails is repeated until it succeeds, or its occurrence is older than the schedule looks back.
func (s *Scheduler) Run(ctx context.Context) error {
	for {
		now := s.o.Now()
		next := lookEvery
		for _, p := range s.all {
			s.look(ctx, p, now)
			next = min(next, p.wait(now))
		}
		if !sleep(ctx, max(next, leastPause)) {
			return nil
		}
	}
}

// wait is how long it takes to the next occurrence, or to another try.
func (p *planned) wait(now time.Time) time.Duration {
	if p.pause > 0 {
		return max(p.retry.Sub(now), 0)
	}
	next := p.times.Next(now)
	if next.IsZero() {
		return lookEvery
	}
	return next.Sub(now)
}

// latest is the latest occurrence that is due and was not looked after, or zero.
func (p *planned) latest(now time.Time) time.Time {
	within := p.Within
	if p.Missed == Skip {
		within = skipWithin
	}
	from := now.Add(-within)
	if p.done.After(now.Add(skipWithin)) { // by a clock that was ahead, and is right now: what was submitted is known to the store
		p.done = time.Time{}
	}
	if p.done.After(from) {
		from = p.done
	}
	var latest time.Time
	for at := p.times.Next(from); !at.IsZero() && !at.After(now); at = p.times.Next(at) { // at most as many as Within has minutes
		latest = at
	}
	return latest
}

func (s *Scheduler) look(ctx context.Context, p *planned, now time.Time) {
	if p.pause > 0 && now.Before(p.retry) && p.retry.Sub(now) <= failMost {
		return
	}
	at := p.latest(now)
	if at.IsZero() {
		p.pause = 0
		return
	}
	often := p.pause == failMost // and said so before
	submitted, err := s.submit(ctx, p, at)
	if err == nil || errors.Is(err, operation.ErrMismatch) || errors.Is(err, operation.ErrInvalid) || errors.Is(err, ErrInvalid) {
		p.done, p.pause = at, 0
	} else {
		p.pause = min(max(2*p.pause, pollFirst), failMost)
		p.retry = now.Add(p.pause)
	}
	if err != nil {
		if !often || p.pause == 0 {
			s.o.Logger.ErrorContext(ctx, "worker: an occurrence was not submitted", "schedule", p.Name, "at", at.UTC(), "again", p.pause > 0, "err", err)
		}
		return
	}
	if s.o.OnSubmitted != nil {
		s.o.OnSubmitted(p.Name, at, submitted)
	}
}

func (s *Scheduler) submit(ctx context.Context, p *planned, at time.Time) (submitted operation.Submitted, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &InvalidError{fmt.Sprintf("the schedule %q", p.Name), "make", fmt.Sprintf("it panicked: %v", cause)}
		}
	}()
	req, err := p.Make(at)
	if err != nil {
		return operation.Submitted{}, err
	}
	req.ID = OccurrenceID(p.Name, at)
	call, cancel := context.WithTimeout(ctx, callMost)
	defer cancel()
	return s.store.Submit(call, req)
}
