package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/internal/tune"
)

const tuneLong = `Recommends a TTL, with its margin, renewal interval, attempt timeout and a waiter's budget, and says what it implies: how
likely a live lease is lost, how many false reclaims and renewals that makes, and how long recovery takes after a crash, split
into remaining TTL, waking, retries and start. A TTL of 10 s does not mean recovery in 10 s. The recommended TTL is the cheapest
that keeps to --target and --max-renewals: blocked seconds and false reclaims have the costs that you give.

How long a renewal takes and how long a process stands still come from a sample, from files, or are assumed:
--seconds N samples the store: a session of its own is renewed about ten times a second and closed again; no lease is taken.
Ctrl-C ends the sample and uses what there is. --renewals and --pauses read a histogram from a file: Prometheus text (lines
NAME_bucket{le="..."}; --metric and --pause-metric choose where there are several; several series of one are added up; it is
in seconds, or in milliseconds where the name ends in _ms or _milliseconds), or JSON {"buckets": [{"le_ms": 5, "count": 990},
{"le_ms": null, "count": 1000}], "over_ms": 3600000}: counts include those of the buckets before, over_ms is the time of the
measurement, which pauses need (or --pauses-over). Neither sees an outage of the store: how often and how long is yours to say.

--ttl adds a TTL to the comparison. --explain prints the model, its assumptions and the inputs. --simulate checks the model by
playing the client's rules on a virtual clock. --svg draws the trade-off.

Exit code 0: a TTL within the bounds was found. 1: none was, and the nearest is printed, or the simulation differs from the
model. 64: an input makes no sense. 77: the store could not be sampled. 130: interrupted before there was anything to say.

JSON: {"within_bounds", "recommended": {"ttl_ms", "margin_ms", "renewal_interval_min_ms", "renewal_interval_max_ms",
"attempt_timeout_ms", "budget_ms", "reserve_ms", "loss_probability_hour", "loss_probability_day", "losses_per_day_by_cause",
"reclaims_per_day", "renewals_per_second", "recovery": {"remaining_ttl", "waking", "retries", "start", "total": each {"mean_ms",
"p50_ms", "p99_ms"}}, "blocked_per_day_ms", "cost_per_day", "out_of_bounds": why, if so}, "ttls": [as recommended], "inputs",
"sampled": {"renewals", "pauses"} as histograms, "simulation", "remarks", "interrupted"}.`

// tuneFlags is the command line of `tenure tune`.
type tuneFlags struct {
	in                                    tune.Inputs
	outageMedian, outageP99               time.Duration
	seconds                               int
	every                                 time.Duration
	renewals, metric, pauses, pauseMetric string
	pausesOver                            time.Duration
	tail                                  float64
	ttl                                   time.Duration
	asJSON, explain, simulate             bool
	svg                                   string
}

func (a *app) tuneCommand() *cobra.Command {
	f := tuneFlags{in: tune.Defaults()}
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "recommend a TTL, and say what it implies",
		Long:  tuneLong,
		Example: `  tenure tune
  tenure tune --store postgres://app@db.example.com/shop --seconds 60 --sessions 400 --start 5s --svg tune.svg
  tenure tune --renewals metrics.txt --metric tenure_renewal_seconds --pauses pauses.json --target 0.001
  tenure tune --cost-per-second 0.05 --cost-per-reclaim 20 --outage-every 2160h --outage-p99 2m --ttl 10s
  tenure tune --explain --simulate
  tenure tune --json | jq .recommended.ttl_ms`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			if !cmd.Flags().Changed("every") {
				f.every = 0 // a short sample renews more often
			}
			return a.tune(cmd.Context(), f)
		},
	}
	f.flags(cmd)
	return cmd
}

func (f *tuneFlags) flags(cmd *cobra.Command) {
	flags, in := cmd.Flags(), &f.in
	flags.IntVar(&f.seconds, "seconds", 0, "sample the store for `N` seconds, 2 to 3600; 0: do not")
	flags.DurationVar(&f.every, "every", tune.DefaultEvery, "between two renewals of the sample, in the mean; 10ms or more")
	flags.StringVar(&f.renewals, "renewals", "", "`FILE` with a histogram of the round trips of renewals; - is standard input")
	flags.StringVar(&f.metric, "metric", "", "`NAME` of the histogram in --renewals")
	flags.StringVar(&f.pauses, "pauses", "", "`FILE` with a histogram of how long the process stands still")
	flags.StringVar(&f.pauseMetric, "pause-metric", "", "`NAME` of the histogram in --pauses")
	flags.DurationVar(&f.pausesOver, "pauses-over", 0, "the time in which the pauses of --pauses happened; default: its over_ms")
	flags.DurationVar(&in.PauseEvery, "pause-every", in.PauseEvery, "between two assumed pauses; 0: there are none")
	flags.Float64Var(&f.tail, "tail", tune.DefaultTail, "index of the tail beyond the largest measurement, 0.5 (heavy) to 10 (light)")
	flags.Float64Var(&in.Failures, "failures", in.Failures, "share of renewals that fail at once, 0 to 0.9")
	flags.DurationVar(&in.OutageEvery, "outage-every", in.OutageEvery, "between two outages of the store; 0: there are none")
	flags.DurationVar(&f.outageMedian, "outage-median", 5*time.Second, "half of the outages are shorter")
	flags.DurationVar(&f.outageP99, "outage-p99", time.Minute, "99 in 100 outages are shorter")
	flags.Float64Var(&in.Hang, "hang", in.Hang, "share of outages in which the store does not answer, 0 to 1; in the others it refuses at once")
	flags.IntVar(&in.Sessions, "sessions", in.Sessions, "`N` sessions renew, one a process as a rule")
	flags.DurationVar(&in.CrashEvery, "crash-every", in.CrashEvery, "between two crashes of a holder; 0: never")
	flags.DurationVar(&in.Start, "start", in.Start, "from the grant to the work going on")
	flags.DurationVar(&in.Poll, "poll", in.Poll, "between two questions of a waiter; 0: it waits in the library or in tenure run --wait")
	flags.Float64Var(&in.CostPerSecond, "cost-per-second", in.CostPerSecond, "of a blocked resource, in any money")
	flags.Float64Var(&in.CostPerReclaim, "cost-per-reclaim", in.CostPerReclaim, "of a live holder that loses its lease")
	flags.Float64Var(&in.Target, "target", in.Target, "highest probability that a live session loses its leases within a day")
	flags.Float64Var(&in.MaxRenewals, "max-renewals", 0, "highest renewals a second of all sessions; 0: no bound")
	flags.DurationVar(&in.Margin, "margin", 0, "margin to use with every TTL; default: chosen for each")
	flags.DurationVar(&f.ttl, "ttl", 0, "also evaluate this TTL")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.StringVar(&f.svg, "svg", "", "draw the trade-off to `FILE`; - is standard output, and nothing else is printed")
	flags.BoolVar(&f.explain, "explain", false, "print the model, its assumptions and the inputs")
	flags.BoolVar(&f.simulate, "simulate", false, "check the model by simulation")
}

// check refuses flags that make no sense together.
func (f tuneFlags) check(given func(string) bool) error {
	switch {
	case f.seconds < 0 || given("seconds") && f.seconds < 2 || f.seconds > int(tune.MaxSample/time.Second):
		return usagef("--seconds %d: want 2 to %d", f.seconds, int(tune.MaxSample/time.Second))
	case f.seconds > 0 && f.renewals != "":
		return usagef("--seconds and --renewals both say how long renewals take: choose one")
	case given("every") && f.seconds == 0:
		return usagef("--every goes with --seconds")
	case f.metric != "" && f.renewals == "":
		return usagef("--metric goes with --renewals FILE")
	case (f.pauseMetric != "" || given("pauses-over")) && f.pauses == "":
		return usagef("--pause-metric and --pauses-over go with --pauses FILE")
	case given("pause-every") && f.pauses != "":
		return usagef("--pause-every is for assumed pauses: --pauses has its own rate")
	case given("pauses-over") && f.pausesOver <= 0:
		return usagef("--pauses-over %v: want more than 0", f.pausesOver)
	case f.renewals == "-" && f.pauses == "-":
		return usagef("only one of --renewals and --pauses can be standard input")
	case math.IsNaN(f.tail) || f.tail < 0.5 || f.tail > 10:
		return usagef("--tail %v: want 0.5 (heavy) to 10 (light)", f.tail)
	case given("ttl") && f.ttl <= 0, given("margin") && f.in.Margin <= 0:
		return usagef("--ttl and --margin: want more than 0")
	case f.svg == "-" && (f.asJSON || f.explain || f.simulate):
		return usagef("--svg - fills standard output: leave --json, --explain and --simulate out, or name a file")
	case f.asJSON && f.explain:
		return usagef("--explain is text: leave --json out; the JSON has the inputs")
	}
	return nil
}

// tune gathers the inputs, evaluates them and reports.
func (a *app) tune(ctx context.Context, f tuneFlags) error {
	extra, err := a.tuneInputs(ctx, &f)
	if err != nil {
		return tuneError(err)
	}
	var also []time.Duration
	if f.ttl > 0 {
		also = append(also, f.ttl)
	}
	plan, err := tune.Recommend(f.in, also...)
	if err != nil {
		return tuneError(err)
	}
	chosen := plan.Points[plan.Best].TTL
	if f.simulate {
		if extra.Checks, err = tune.Simulate(f.in, chosen, 1); err != nil {
			return tuneError(err)
		}
	}
	if err := a.printPlan(plan, extra, f); err != nil {
		return err
	}
	failed := !plan.Met
	for _, c := range extra.Checks {
		failed = failed || !c.Agrees
	}
	if failed {
		return &codedError{exitFailed}
	}
	return nil
}

func (a *app) printPlan(plan tune.Plan, extra tune.Extra, f tuneFlags) error {
	if f.svg == "-" {
		return plan.WriteSVG(a.stdout)
	}
	if err := a.reportPlan(plan, extra, f); err != nil {
		return err
	}
	if f.svg != "" { // after what a sample has cost time to learn
		return drawTo(f.svg, plan)
	}
	return nil
}

func (a *app) reportPlan(plan tune.Plan, extra tune.Extra, f tuneFlags) error {
	if f.asJSON {
		return plan.WriteJSON(a.stdout, extra)
	}
	for _, remark := range extra.Remarks {
		a.say("%s", remark)
	}
	if err := plan.WriteText(a.stdout); err != nil {
		return err
	}
	if len(extra.Checks) > 0 {
		if err := tune.WriteChecks(a.stdout, plan.Points[plan.Best].TTL, extra.Checks); err != nil {
			return err
		}
	}
	if f.explain {
		return plan.Inputs.WriteExplanation(a.stdout)
	}
	return nil
}

func drawTo(path string, plan tune.Plan) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	return errors.Join(plan.WriteSVG(file), file.Close())
}

// tuneInputs replaces what is assumed by what is given and measured.
func (a *app) tuneInputs(ctx context.Context, f *tuneFlags) (tune.Extra, error) {
	var extra tune.Extra
	outages, err := tune.NewLognormal("--outage-median, --outage-p99", f.outageMedian, f.outageP99)
	if err != nil {
		return extra, err
	}
	f.in.Outages = outages
	if err := f.in.Check(); err != nil { // before a sample takes its time
		return extra, err
	}
	if f.renewals != "" {
		m, err := a.readHistogram(f.renewals, f.metric)
		if err != nil {
			return extra, err
		}
		if err := f.in.UseRenewals(f.renewals, m, f.tail); err != nil {
			return extra, err
		}
	}
	if f.seconds > 0 {
		sampled, remarks, err := a.sampleStore(ctx, f)
		if err != nil {
			return extra, err
		}
		extra.Sampled, extra.Remarks = &sampled, remarks
	}
	if f.pauses != "" {
		m, err := a.readHistogram(f.pauses, f.pauseMetric)
		if err != nil {
			return extra, err
		}
		if err := f.in.UsePauses(f.pauses, m, f.pausesOver, f.tail); err != nil {
			return extra, err
		}
	}
	if f.seconds == 0 && f.renewals == "" {
		extra.Remarks = append(extra.Remarks, "nothing was measured: the round trips of renewals are assumed; --seconds 30 samples the store, --explain shows the inputs")
	}
	return extra, nil
}

func (a *app) readHistogram(path, metric string) (tune.Measured, error) {
	if path == "-" {
		return tune.Read("standard input", a.stdin, metric)
	}
	file, err := os.Open(path)
	if err != nil {
		return tune.Measured{}, usagef("%v", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	m, err := tune.Read(path, file, metric)
	if err != nil && !errors.Is(err, tune.ErrInput) {
		return m, usagef("%v", err) // a folder, for example
	}
	return m, err
}

// sampleStore samples until the time is up or Ctrl-C.
func (a *app) sampleStore(ctx context.Context, f *tuneFlags) (tune.Sampled, []string, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second Ctrl-C ends the program
	s, l, err := a.open(ctx, openOptions{made: true})
	if err != nil {
		return tune.Sampled{}, nil, interrupted(ctx, a, err)
	}
	defer a.close(ctx, s)
	g := s.Guarantees()
	f.in.MinTTL, f.in.MaxTTL, f.in.Grain = g.MinTTL, g.MaxTTL, g.Grain
	o := tune.SampleOptions{For: time.Duration(f.seconds) * time.Second, Every: f.every}
	const quiet = 5 // seconds that nobody needs to be told of
	if f.seconds > quiet {
		a.say("sampling %s for %d s; Ctrl-C ends it and uses what there is", l.shown, f.seconds)
		next := quiet * time.Second
		o.Progress = func(elapsed time.Duration, renewals, failed int) {
			if elapsed >= next {
				next += quiet * time.Second
				a.say("%v of %v: %d renewals, %d failed", elapsed.Round(time.Second), o.For, renewals, failed)
			}
		}
	}
	sampled, err := tune.Sample(ctx, s, o)
	if err != nil {
		return sampled, nil, interrupted(ctx, a, err)
	}
	if sampled.Interrupted {
		a.say("interrupted after %v: going on with %d renewals", sampled.Elapsed.Round(100*time.Millisecond), sampled.Acked)
	}
	remarks, err := f.in.UseSample(sampled, f.tail)
	return sampled, remarks, err
}

// interrupted is err, or the exit code of a program that Ctrl-C ended.
func interrupted(ctx context.Context, a *app, err error) error {
	if ctx.Err() == nil {
		return err
	}
	a.say("interrupted: %v", err)
	return &codedError{exitInterrupted}
}

// tuneError gives an error its exit code: a bad input is a mistake in the command line, a store that did not answer is none.
func tuneError(err error) error {
	switch {
	case errors.Is(err, tune.ErrInput):
		return usagef("%v", err)
	case errors.Is(err, tune.ErrTooFew):
		return &storeError{err}
	}
	return err
}
