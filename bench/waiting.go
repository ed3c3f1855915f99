package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

const waitingMethod = "What waiting within a budget adds to calls. *Do* makes one attempt of a function that does nothing, with a timeout, under a budget that has begun; beside it the context that such a call needs anyhow. " +
	"*The transport* sends a request with four headers, under an attempt of a Do, to a transport that answers at once and to a server on this machine, and beside it the same without it: what it adds is the headers of the budget and the classification by httptrace. The sides take turns in blocks, one goroutine; " +
	"the figure of a round is the median of its blocks. *Three layers* of three attempts each, whose bottom always fails, are asked 10,000 times by one caller, in one process; pauses are of a nanosecond, so that it ends. *Silent* layers hide that they have repeated a call, as those of others do; ours say so, and nobody repeats above them."

const (
	waitingContext = "context.WithTimeout alone"
	waitingDo      = "budget.Do, first attempt"
	waitingStart   = "budget.Start and End"

	transportStub   = "a transport that answers at once"
	transportOver   = "the same below budgethttp.Transport"
	transportSocket = "a server on this machine"
	transportBoth   = "the same, by budgethttp.Transport"

	doMost        = 150 // ns
	transportMost = 2   // us
	layersMost    = 1.2
	layersAsked   = 10_000
	layersQuick   = 200
)

// shortCall is one side of a comparison of short calls.
type shortCall struct {
	name  string
	block int // calls between two looks at the clock
	call  func() error
}

// costs are what a call of each side took in each round: nanoseconds, and allocations.
type costs map[string]*cost

type cost struct{ nanos, allocs []float64 }

func runWaiting(ctx context.Context, p *plan, r *report.Report) error {
	r.Method = waitingMethod
	if err := waitingCalls(ctx, p, r); err != nil {
		return err
	}
	if err := waitingTransport(ctx, p, r); err != nil {
		return err
	}
	return waitingLayers(ctx, p, r)
}

// round measures the sides in turns, for a cell each. A block is over before the kernel would give the processor to somebody else, as a rule.
func (c costs) round(ctx context.Context, p *plan, sides []shortCall) error {
	nanos := make([][]float64, len(sides))
	for end := time.Now().Add(p.cell * time.Duration(len(sides))); time.Now().Before(end) || len(nanos[0]) < 2; {
		for i, side := range sides {
			if err := ctx.Err(); err != nil {
				return err
			}
			begun := time.Now()
			if err := side.repeat(side.block); err != nil {
				return err
			}
			nanos[i] = append(nanos[i], float64(time.Since(begun))/float64(side.block))
		}
	}
	for i, side := range sides {
		allocs, err := side.allocs()
		if err != nil {
			return err
		}
		if c[side.name] == nil {
			c[side.name] = &cost{}
		}
		c[side.name].nanos = append(c[side.name].nanos, stats.Median(nanos[i]))
		c[side.name].allocs = append(c[side.name].allocs, allocs)
	}
	return nil
}

func (s shortCall) repeat(n int) error {
	for range n {
		if err := s.call(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// allocs is how many allocations a call makes, to the tenth: what else the process does meanwhile is in it.
func (s shortCall) allocs() (float64, error) {
	const calls = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := s.repeat(calls)
	runtime.ReadMemStats(&after)
	return math.Round(float64(after.Mallocs-before.Mallocs)/calls*10) / 10, err
}

// more is how much more one side takes than another, round by round.
func more(of, than []float64) []float64 {
	var out []float64
	for i := range min(len(of), len(than)) {
		out = append(out, of[i]-than[i])
	}
	return out
}

// over divides by d.
func over(values []float64, d float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v / d
	}
	return out
}

// table has a row for the first of each pair, compared with the second; "": with none.
func (c costs) table(title, unit string, per float64, pairs [][2]string) report.Table {
	t := report.Table{Title: title, Label: "call", Columns: []string{unit, "more, " + unit, "ratio", "allocations", "more of them"}}
	for _, pair := range pairs {
		side, beside := c[pair[0]], c[pair[1]]
		cells := []report.Cell{report.Rounds(over(side.nanos, per)), {}, {}, report.Rounds(side.allocs), {}}
		if beside != nil {
			cells[1] = report.Rounds(over(more(side.nanos, beside.nanos), per))
			cells[2] = report.Rounds(stats.Ratios(side.nanos, beside.nanos))
			cells[4] = report.Rounds(more(side.allocs, beside.allocs))
		}
		t.Rows = append(t.Rows, report.Row{Label: pair[0], Cells: cells})
	}
	return t
}

func waitingCalls(ctx context.Context, p *plan, r *report.Report) error {
	b, err := budget.Start(ctx, 24*time.Hour)
	if err != nil {
		return err
	}
	defer b.End()
	within := b.Context()
	nothing := func(context.Context) error { return nil }
	policy := budget.Policy{Try: budget.Try{Name: "bench", Timeout: time.Second}}
	sides := []shortCall{
		{waitingContext, 200, func() error {
			timed, cancel := context.WithTimeout(within, time.Second)
			defer cancel()
			return nothing(timed)
		}},
		{waitingDo, 200, func() error { return budget.Do(within, policy, nothing) }},
		{waitingStart, 50, func() error {
			inner, err := budget.Start(within, time.Second)
			if err == nil {
				inner.End()
			}
			return err
		}},
	}
	c := costs{}
	if err := p.eachRound(ctx, func(int) error { return c.round(ctx, p, sides) }); err != nil {
		return err
	}
	r.Tables = append(r.Tables, c.table("A first attempt that succeeds:", "ns", 1, [][2]string{{waitingContext, ""}, {waitingDo, waitingContext}, {waitingStart, waitingContext}}))
	do, alone := c[waitingDo], c[waitingContext]
	r.Targets = append(r.Targets,
		report.AtMost("budget.Do on the first attempt, more than context.WithTimeout alone", doMost, " ns", more(do.nanos, alone.nanos)),
		report.AtMost("allocations of that, more than context.WithTimeout alone", 1, "", more(do.allocs, alone.allocs)))
	return nil
}

// answers is a transport without a network.
type answers struct{ response http.Response }

// RoundTrip is part of http.RoundTripper.
func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	response := a.response
	return &response, nil
}

func waitingTransport(ctx context.Context, p *plan, r *report.Report) error {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	socket := &http.Transport{}
	defer socket.CloseIdleConnections()
	stub := &answers{http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}}
	b, err := budget.Start(ctx, 24*time.Hour)
	if err != nil {
		return err
	}
	defer b.End()
	c := costs{}
	err = budget.Do(b.Context(), budget.Policy{}, func(within context.Context) error {
		side := func(name string, block int, t http.RoundTripper) shortCall {
			return shortCall{name, block, func() error { return send(within, server.URL, t) }}
		}
		sides := []shortCall{
			side(transportStub, 50, stub), side(transportOver, 50, &budgethttp.Transport{Base: stub}), side(transportSocket, 5, socket), side(transportBoth, 5, &budgethttp.Transport{Base: socket}),
		}
		return p.eachRound(ctx, func(int) error { return c.round(ctx, p, sides) })
	})
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, c.table("A request and its answer, the request's own making included:", "us", 1000,
		[][2]string{{transportStub, ""}, {transportOver, transportStub}, {transportSocket, ""}, {transportBoth, transportSocket}}))
	r.Targets = append(r.Targets, report.AtMost("budgethttp.Transport, more than the transport below it alone", transportMost, " us", over(more(c[transportOver].nanos, c[transportStub].nanos), 1000)))
	return nil
}

// send is one request and its answer.
func send(ctx context.Context, url string, t http.RoundTripper) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}, "Authorization": {"Bearer x"}, "Idempotency-Key": {"y"}}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

var errBottom = errors.New("the bottom fails")

// layered is how three layers are made.
type layered struct {
	name                   string
	silent, throttled, one bool // layers say nothing; each has a throttle; the top asks those below not to repeat
}

func waitingLayers(ctx context.Context, p *plan, r *report.Report) error {
	const silentBare, silentThrottled = "silent, no throttle", "silent, a throttle each"
	kinds := []layered{
		{silentBare, true, false, false}, {silentThrottled, true, true, false}, {"silent, NoRetryBelow on top", true, false, true}, {"of ours, no throttle", false, false, false}, {"of ours, a throttle each", false, true, false},
	}
	requests := p.pick(layersAsked, layersQuick)
	work := map[string][]float64{}
	err := p.eachRound(ctx, func(int) error {
		for _, k := range kinds {
			n, err := k.ask(ctx, requests)
			if err != nil {
				return fmt.Errorf("layers %s: %w", k.name, err)
			}
			work[k.name] = append(work[k.name], float64(n)/float64(requests))
		}
		return nil
	})
	if err != nil {
		return err
	}
	t := report.Table{Title: fmt.Sprintf("Calls at the failing bottom for each of %d requests at the top; a bottom that works has 1:", requests), Label: "three layers of three attempts", Columns: []string{"calls at the bottom a request"}, Chart: true}
	for _, k := range kinds {
		t.Rows = append(t.Rows, report.Row{Label: k.name, Cells: []report.Cell{report.Rounds(work[k.name])}})
	}
	r.Tables = append(r.Tables, t)
	r.Targets = append(r.Targets, report.AtMost("calls at the bottom of three failing layers with throttles, to a bottom that works", layersMost, "x", work[silentThrottled]))
	return nil
}

// ask is how often the bottom was called.
func (k layered) ask(ctx context.Context, requests int) (bottom int, err error) {
	b, err := budget.Start(ctx, 24*time.Hour)
	if err != nil {
		return 0, err
	}
	defer b.End()
	policies := make([]budget.Policy, 3)
	for i := range policies {
		policies[i] = budget.Policy{Try: budget.Try{Name: fmt.Sprint("layer ", i)}, Idempotent: true, Base: 1, Most: 1, NoRetryBelow: k.one && i == 0}
		if k.throttled {
			if policies[i].Throttle, err = budget.NewThrottle(budget.ThrottleOptions{}); err != nil {
				return 0, err
			}
		}
	}
	var call func(ctx context.Context, layer int) error
	call = func(ctx context.Context, layer int) error {
		if layer == len(policies) {
			bottom++
			return &budget.Error{Class: budget.NotSent, Err: errBottom}
		}
		err := budget.Do(ctx, policies[layer], func(ctx context.Context) error { return call(ctx, layer+1) })
		if k.silent && err != nil {
			return &budget.Error{Class: budget.NotSent, Err: errBottom}
		}
		return err
	}
	for range requests {
		if err := call(b.Context(), 0); !errors.Is(err, errBottom) {
			return 0, fmt.Errorf("want the bottom's failure: %w", err)
		}
	}
	return bottom, nil
}
