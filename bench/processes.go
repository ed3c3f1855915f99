package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
)

const processesMethod = "Eight processes have one file open. Each renews its session every 100 ms, and beside that 1 or 8 goroutines acquire and release names of their own without a pause. " +
	"A renewal's time counts from when it was due, so one that is late because the one before it was slow counts as slow. Percentiles are over the renewals of all processes and rounds; " +
	"*cycles* is the busiest process divided by the idlest, in the worst round. All processes share the machine's processors."

// childEnv holds a childConfig in a process that the benchmark starts.
const childEnv = "TENURE_BENCH_CHILD"

// processTimes is how much longer than another measurement this one takes: its tail is the point.
const processTimes = 10

// childConfig tells a child what to do.
type childConfig struct {
	Path       string `json:"path"`
	Number     int    `json:"number"`
	Loops      int    `json:"loops"`
	ForMS      int64  `json:"for_ms"`
	EachMS     int64  `json:"renew_each_ms"`
	SessionTTL int64  `json:"session_ttl_ms"`
}

// childResult is what it reports, times in microseconds.
type childResult struct {
	Cycles   int       `json:"cycles"`
	Renewals []float64 `json:"renewals_us"`
	Acquires []float64 `json:"acquires_us"`
	Errors   int       `json:"errors"`
	Locked   int       `json:"locked"` // of the errors, those that say so
	Sample   string    `json:"sample,omitempty"`
}

// processRound is what one round of all processes gave.
type processRound struct {
	cycles             []float64 // of each process
	renewals, acquires []float64 // of all, in microseconds
	errors, locked     int
	sample             string
}

func runProcesses(ctx context.Context, p *plan, r *report.Report) error {
	r.Method = processesMethod
	processes := p.pick(8, 3)
	loops := []int{1, 8}
	each := processTimes * p.cell
	if p.settings.Quick {
		each = time.Second
	}
	r.Settings.Seconds = each.Seconds()
	found := map[int][]processRound{}
	err := p.eachRound(ctx, func(round int) error {
		for _, n := range loops {
			config := childConfig{
				Path: p.path(fmt.Sprintf("processes-%d-%d.db", n, round)), Loops: n,
				ForMS: each.Milliseconds(), EachMS: 100, SessionTTL: time.Minute.Milliseconds(),
			}
			one, err := processesOnce(ctx, processes, config)
			if err != nil {
				return err
			}
			found[n] = append(found[n], one)
		}
		return nil
	})
	if err != nil {
		return err
	}
	processTables(r, processes, loops, found, each)
	return nil
}

// child is a process that was started, and its pipes.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// processesOnce starts the processes, lets them begin together when all have the file open, and collects what they report.
func processesOnce(ctx context.Context, n int, config childConfig) (_ processRound, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(config.ForMS)*time.Millisecond+time.Minute)
	defer cancel()
	var children []*child
	defer func() {
		cancel() // kills whoever is still there
		for _, c := range children {
			err = errors.Join(err, c.in.Close(), c.cmd.Wait())
		}
	}()
	for i := range n {
		config.Number = i
		c, err := startChild(ctx, config)
		if err != nil {
			return processRound{}, err
		}
		children = append(children, c)
	}
	for _, c := range children {
		if line, err := c.out.ReadString('\n'); err != nil || line != "ready\n" {
			return processRound{}, fmt.Errorf("a process did not get ready: %q: %w", line, err)
		}
	}
	for _, c := range children {
		if _, err := io.WriteString(c.in, "go\n"); err != nil {
			return processRound{}, err
		}
	}
	var round processRound
	for _, c := range children {
		var result childResult
		if err := json.NewDecoder(c.out).Decode(&result); err != nil {
			return processRound{}, fmt.Errorf("a process's report: %w", err)
		}
		round.add(result)
	}
	for _, c := range children { // all reports are in: let them end by themselves
		if err := c.in.Close(); err != nil {
			return processRound{}, err
		}
		if err := c.cmd.Wait(); err != nil {
			return processRound{}, fmt.Errorf("a process: %w", err)
		}
	}
	children = nil
	return round, nil
}

func (r *processRound) add(c childResult) {
	r.cycles = append(r.cycles, float64(c.Cycles))
	r.renewals = append(r.renewals, c.Renewals...)
	r.acquires = append(r.acquires, c.Acquires...)
	r.errors += c.Errors
	r.locked += c.Locked
	if r.sample == "" {
		r.sample = c.Sample
	}
}

func startChild(ctx context.Context, config childConfig) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

func processTables(r *report.Report, processes int, loops []int, found map[int][]processRound, each time.Duration) {
	t := report.Table{Title: fmt.Sprintf("%d processes:", processes), Label: "goroutines in each process", Columns: []string{
		"renewals", "renewal p50, ms", "p99, ms", "max, ms", "acquire p50, ms", "p99, ms", "cycles/s, all", "cycles, most / least", "errors",
	}}
	for _, n := range loops {
		var renewals, acquires, spreads, rates []float64
		failed, locked, sample := 0, 0, ""
		for _, round := range found[n] {
			renewals = append(renewals, round.renewals...)
			acquires = append(acquires, round.acquires...)
			spreads = append(spreads, spreadOrWorst(round.cycles))
			rates = append(rates, sum(round.cycles)/each.Seconds())
			failed += round.errors
			locked += round.locked
			if sample == "" {
				sample = round.sample
			}
		}
		p99 := stats.Percentile(renewals, 99) / 1000
		worst := stats.Percentile(spreads, 100)
		t.Rows = append(t.Rows, report.Row{Label: strconv.Itoa(n), Cells: []report.Cell{
			report.Number(float64(len(renewals))), report.Number(stats.Percentile(renewals, 50) / 1000), report.Number(p99),
			report.Number(stats.Percentile(renewals, 100) / 1000), report.Number(stats.Percentile(acquires, 50) / 1000),
			report.Number(stats.Percentile(acquires, 99) / 1000), report.Rounds(rates), report.Number(worst), report.Number(float64(failed)),
		}})
		label := fmt.Sprintf(", %d processes, goroutines in each: %d", processes, n)
		r.Targets = append(r.Targets,
			report.Target{What: "renewal p99" + label, Must: "<=", Limit: 25, Unit: " ms", Got: p99},
			report.Target{What: "cycles of the busiest process to the idlest" + label, Must: "<=", Limit: 2, Unit: "x", Got: worst},
			report.Target{What: `errors that say "locked"` + label, Must: "=", Limit: 0, Got: float64(locked)},
			report.Target{What: "errors of any kind" + label, Must: "=", Limit: 0, Got: float64(failed)})
		if sample != "" {
			r.Notes = append(r.Notes, "An error was: "+sample)
		}
	}
	r.Tables = append(r.Tables, t)
}

// starved stands for a process that did nothing at all: no finite ratio is as bad.
const starved = 1e9

func spreadOrWorst(cycles []float64) float64 {
	if s := stats.Spread(cycles); s > 0 {
		return s
	}
	return starved
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}
