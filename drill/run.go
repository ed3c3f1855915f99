package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
)

// Options say what to drill, and where.
type Options struct {
	Scenario string
	// Path is the authority's SQLite database, absolute; URL its PostgreSQL database, in which Tenure's schema is
	// installed. With neither, the story is played in this process's memory, and drills that need no store of the user's make their own.
	Path, URL string
	Store     string // the store as the report names it
	// S3 is the URL of a bucket, http://KEY:SECRET@HOST:PORT/BUCKET; without keys they are the environment's. For fence-object alone.
	S3 string
	// Folder is where fence-file makes a folder for its files, absolute; it is removed afterwards. Empty: where the system keeps temporary files.
	Folder string
	Rounds int // 1 to the scenario's MaxRounds; 0: the scenario's own number
	// Unfenced turns the resource's checks off. The drill is then ok if the damage is seen.
	Unfenced bool
	// HighWater has the resource check by its mark instead of strictly. Not for the story, nor for drills inside transactions.
	HighWater bool
	// ThroughAPI sends the late write of pause through the library instead of straight to the resource.
	ThroughAPI bool
	// Self is how to start this program as a part of a drill: "worker" or "judge" is appended, and that process must do
	// nothing but call Worker or Judge. It is started with this process's environment.
	Self []string
	// Progress hears of each round that ended, while the drill is under way. nil: nothing is said.
	Progress io.Writer
}

// Run plays a drill and returns what a second process judged of it. Report.OK says whether the drill showed what it
// promised; with it false the error is nil all the same.
//
// Run makes tables in the database and removes them, also when ctx ends; then it kills its processes and returns an error
// matching [ErrInterrupted]. It returns one matching [ErrUnknownScenario], [ErrOption] or [ErrUnsupported] before
// anything was done, and [ErrProcess] or the store's own error when the drill could not be played. Names
// that it leased stay behind, free, until they are pruned; with HighWater the marks stay too where the role may not delete them.
// Several drills may run on one store at a time.
func Run(ctx context.Context, o Options) (Report, error) {
	sc, err := o.complete()
	if err != nil {
		return Report{}, err
	}
	began := time.Now()
	var r Report
	switch {
	case sc.whole != nil:
		r, err = sc.whole(ctx, o, sc)
	case sc.Name == "story" && o.place().none():
		r, err = storyInMemory(ctx, o)
	case sc.Name == "story":
		r, err = storyOnStore(ctx, o, sc)
	default:
		r, err = conduct(ctx, o, sc)
	}
	r.Scenario, r.Store, r.Rounds, r.Fenced = o.Scenario, o.Store, o.Rounds, !o.Unfenced
	if o.HighWater {
		r.Check = string(guardMark)
	}
	r.RunMS = time.Since(began).Milliseconds()
	if ctx.Err() != nil {
		return r, errors.Join(fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx)), err)
	}
	return r, err
}

func (o *Options) complete() (Scenario, error) {
	sc, ok := find(o.Scenario)
	switch {
	case !ok:
		return sc, fmt.Errorf("%w %q; `tenure drill list` names them", ErrUnknownScenario, o.Scenario)
	case o.Path != "" && o.URL != "":
		return sc, fmt.Errorf("%w: a drill is played on one store", ErrOption)
	case sc.OwnServers && !o.place().none():
		return sc, fmt.Errorf("%w: %s builds servers of its own and touches no store of yours", ErrOption, sc.Name)
	case sc.PostgresOnly && o.Path != "":
		return sc, fmt.Errorf("%w: %s is about transactions on PostgreSQL; name a postgres:// store, or none: then it starts a server of its own", ErrOption, sc.Name)
	case o.place().none() && sc.Name != "story" && !sc.OwnServers && !sc.PostgresOnly:
		return sc, fmt.Errorf("%w: %s needs a store that several processes share; in memory there is only the story", ErrOption, sc.Name)
	case (o.S3 != "") != sc.Objects:
		return sc, fmt.Errorf("%w: a bucket is for fence-object, and fence-object needs one: http://KEY:SECRET@HOST:PORT/BUCKET", ErrOption)
	case o.Folder != "" && !sc.Files:
		return sc, fmt.Errorf("%w: a folder is for fence-file", ErrOption)
	case o.Folder != "" && !filepath.IsAbs(o.Folder):
		return sc, fmt.Errorf("%w: the folder %q is not absolute", ErrOption, o.Folder)
	case o.HighWater && (sc.whole != nil || sc.Name == "story"):
		return sc, fmt.Errorf("%w: %s has its own kind of check", ErrOption, sc.Name)
	case o.HighWater && (o.Unfenced || o.ThroughAPI):
		return sc, fmt.Errorf("%w: the high-water mark is a check of the resource's own, in place of the strict one", ErrOption)
	case o.ThroughAPI && sc.Name != "pause":
		return sc, fmt.Errorf("%w: only the drill pause sends its late write through the API", ErrOption)
	case o.ThroughAPI && o.Unfenced:
		return sc, fmt.Errorf("%w: the API always checks, there is no unfenced form of it", ErrOption)
	case o.Rounds < 0 || o.Rounds > sc.MaxRounds():
		return sc, fmt.Errorf("%w: want 1 to %d rounds, got %d", ErrOption, sc.MaxRounds(), o.Rounds)
	case len(o.Self) == 0:
		return sc, fmt.Errorf("%w: no way to start the workers", ErrOption)
	case sc.needsStop && !canStop():
		return sc, fmt.Errorf("%w: %s stops a process, which this system has no signal for", ErrUnsupported, sc.Name)
	}
	if o.Rounds == 0 {
		o.Rounds = sc.Rounds
	}
	if sc.Objects {
		bucket, err := shown(o.S3)
		if err != nil {
			return sc, err
		}
		o.Store += ", objects in " + bucket
	}
	if sc.Files {
		if o.Folder == "" {
			o.Folder = os.TempDir()
		}
		o.Store += ", files in " + o.Folder
	}
	return sc, nil
}

// place is where the store is.
func (o Options) place() place { return place{Path: o.Path, URL: o.URL, S3: o.S3, Folder: o.Folder} }

// conductor plays one run.
type conductor struct {
	o     Options
	sc    Scenario
	run   string
	began time.Time
	now   clock.Source // shared by all processes of the machine
	site  site
	store authority
	res   *resource

	disarm []func(ctx context.Context) error // take back what was made beside the resource, the last first

	mu       sync.Mutex
	failures []error // of rounds that could not be played
	void     []int   // rounds that do not count
	extra    int     // attempts beyond the first
	ended    int     // rounds
}

// conduct plays the rounds of a scenario and has them judged.
func conduct(ctx context.Context, o Options, sc Scenario) (r Report, err error) {
	c, err := prepare(ctx, o, sc)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.cleanUp(ctx)) }()
	c.playAll(ctx)
	if ctx.Err() != nil {
		return r, nil
	}
	demand := sc.demand
	demand.Rounds, demand.Fenced, demand.Void = o.Rounds, !o.Unfenced, c.void
	if o.ThroughAPI {
		demand.Unsent = 1
	}
	verdict, err := askJudge(ctx, o.Self, question{place: o.place(), Run: c.run, Rows: c.res.rows != nil, Demand: demand})
	r = reportOf(verdict, c.failures)
	r.ReplayedRounds = len(c.void)
	return r, err
}

const (
	cleanUpBound  = 10 * time.Second
	roundBound    = time.Minute
	progressAfter = 2 * time.Second // a drill that is over by then says nothing meanwhile
)

// prepare opens the store and makes the run's tables.
func prepare(ctx context.Context, o Options, sc Scenario) (_ *conductor, err error) {
	c := &conductor{o: o, sc: sc, began: time.Now(), site: o.place().site()}
	c.run = newRun(c.began)
	if c.now, _, err = clock.Kernel(); err != nil {
		return nil, err
	}
	if c.store, err = c.site.open(ctx); err != nil {
		return nil, err
	}
	if c.res, err = openResource(o.place(), c.run); err == nil {
		err = errors.Join(c.res.sweep(ctx, c.began), c.res.create(ctx))
	}
	if err == nil && sc.arm != nil {
		err = sc.arm(ctx, c)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the resource: %w", err), c.cleanUp(ctx))
	}
	return c, nil
}

// cleanUp removes the run's tables, also when the drill was interrupted. The workers are gone by then.
func (c *conductor) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBound)
	defer cancel()
	var err error
	for _, undo := range slices.Backward(c.disarm) {
		err = errors.Join(err, undo(ctx))
	}
	if c.res != nil {
		if bad := c.res.remove(ctx); bad != nil {
			err = errors.Join(err, fmt.Errorf("removing the %s, which a later drill will do: %w", c.res.made(), bad))
		}
		err = errors.Join(err, c.res.close())
	}
	return errors.Join(err, c.store.Shutdown(ctx))
}

// playAll plays every round, some at a time, and waits until nothing of them is left.
func (c *conductor) playAll(ctx context.Context) {
	slots := make(chan struct{}, min(c.sc.atOnce, c.site.traits().atOnce))
	var rounds sync.WaitGroup
	defer rounds.Wait()
	for n := 1; n <= c.o.Rounds; n++ {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		rounds.Go(func() {
			defer func() { <-slots }()
			c.playOne(ctx, n)
		})
	}
}

// maxAttempts is how often a round is begun that this machine was too slow for.
const maxAttempts = 3

// playOne plays round n. If a worker loses its lease by being slow, before any late write was sent, that says something
// of this machine: the round is void, and is played again. The judge makes sure that nothing was refused in it.
func (c *conductor) playOne(ctx context.Context, n int) {
	ctx, cancel := context.WithTimeout(ctx, roundBound)
	defer cancel()
	var err error
	for attempt := 1; ; attempt++ {
		r := c.newRound(n, attempt)
		err = c.sc.play(ctx, r)
		r.end()
		if err == nil || attempt == maxAttempts || r.sent || ctx.Err() != nil || !errors.Is(err, lease.ErrEnded) && !errors.Is(err, errTooSlow) {
			break
		}
		c.mu.Lock()
		c.void = append(c.void, r.n)
		c.mu.Unlock()
	}
	if err != nil {
		err = fmt.Errorf("round %d: %w", n, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if err != nil {
		c.failures = append(c.failures, err)
	}
	if c.o.Progress == nil || ctx.Err() != nil || err == nil && time.Since(c.began) < progressAfter {
		return
	}
	word := "played"
	if err != nil {
		word = "failed: " + err.Error()
	}
	fmt.Fprintf(c.o.Progress, "drill %s: round %d %s (%d of %d)\n", c.sc.Name, n, word, c.ended, c.o.Rounds)
}

// newRound gives each attempt at a round a number of its own: n, or one above all rounds.
func (c *conductor) newRound(n, attempt int) *round {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := n
	if attempt > 1 {
		c.extra++
		id = c.o.Rounds + c.extra
	}
	return &round{c: c, n: id, turn: n, name: nameOf(c.run, id)}
}

// probe makes sure that the store answers: a worker that was stopped inside a write to a file would stop everybody.
func (c *conductor) probe(ctx context.Context) error {
	const bound = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	_, err := c.store.Renew(ctx, lease.RenewRequest{Session: lease.NewID()}) // of nobody: it takes its turn and changes nothing
	if errors.Is(err, lease.ErrEnded) {
		return nil
	}
	return fmt.Errorf("the store cannot be written while the worker is stopped: %w", err)
}

// guard is what the resource checks in this run.
func (c *conductor) guard() guard {
	if c.o.Unfenced {
		return c.sc.unguarded
	}
	if c.o.HighWater {
		return guardMark
	}
	if c.sc.guarded != "" {
		return c.sc.guarded
	}
	return guardStrict
}

// round is one round on its way.
type round struct {
	c     *conductor
	n     int    // of the attempt, as the resource knows it
	turn  int    // of the round, from 1
	name  string // that is leased
	procs []*process
	sent  bool  // a late write
	at    place // of the authority, where it is not beside the resource

	service string // the URL of what stands before the resource; none: it is reached as tables
}

// spawn starts a worker.
func (r *round) spawn(name string) (*process, error) { return r.spawnGuarded(name, r.c.guard()) }

// spawnGuarded starts a worker that knows of another check than the scenario's.
func (r *round) spawnGuarded(name string, check guard) (*process, error) {
	s := setup{place: r.c.o.place(), Run: r.c.run, Guard: check, Rows: r.c.res.rows != nil, Name: name, Round: r.n, Service: r.service}
	if !r.at.none() {
		resource := s.place
		s.Resource, s.place = &resource, r.at
	}
	p, err := launch(r.c.o.Self, s)
	if err == nil {
		r.procs = append(r.procs, p)
	}
	return p, err
}

// end kills every worker of the round.
func (r *round) end() {
	for _, p := range r.procs {
		p.kill()
	}
}

// saw records an event on behalf of a worker.
func (r *round) saw(ctx context.Context, p *process, what model.What) error {
	token, till := p.heldTill()
	return r.c.res.saw(ctx, model.Event{Round: r.n, Token: token, What: what, At: till})
}
