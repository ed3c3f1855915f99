package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/bench/report"
)

// options are what was typed.
type options struct {
	list, all, quick, docs, strict bool
	only                           string
	out, dir, tenure, profile      string
	rounds                         int
	seconds                        float64
}

const (
	exitFailed = 1
	exitUsage  = 64
)

// defaults of a real run, and of a quick one.
const (
	defaultRounds  = 5
	defaultSeconds = 1
	quickRounds    = 1
	quickSeconds   = 0.05
)

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&o.list, "list", false, "list the benchmarks")
	f.BoolVar(&o.all, "all", false, "run all benchmarks; the same as naming none")
	f.StringVar(&o.only, "only", "", "run these `names`, separated by commas")
	f.BoolVar(&o.quick, "quick", false, "run for a moment: shows that it runs, the figures mean nothing")
	f.IntVar(&o.rounds, "rounds", 0, "interleaved `rounds`, 1 or more; 0 for the default, 5")
	f.Float64Var(&o.seconds, "seconds", 0, "`seconds` of each measurement in a round; 0 for the default, 1. The processes run ten times as long, the fenced transactions five")
	f.StringVar(&o.out, "out", "", "`folder` for the JSON; default out, in this module")
	f.StringVar(&o.dir, "dir", "", "`folder` for the database files, on the disk that is to be measured; default: the folder of --out")
	f.StringVar(&o.tenure, "tenure", "", "the tenure `binary` to time; default: it is built first")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of this process to `file`")
	f.BoolVar(&o.strict, "strict", false, "exit 1 when a target was missed")
	f.BoolVar(&o.docs, "docs", false, "write docs/performance.md and its pictures from results, and run nothing")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var problem string
	switch {
	case f.NArg() > 0:
		problem = fmt.Sprintf("unexpected argument %q", f.Arg(0))
	case o.rounds < 0:
		problem = fmt.Sprintf("--rounds %d: want 0 for the default, or more", o.rounds)
	case o.seconds < 0 || o.seconds > 3600:
		problem = fmt.Sprintf("--seconds %v: want 0 for the default, or at most 3600", o.seconds)
	case o.all && o.only != "":
		problem = "--all and --only contradict each other"
	}
	if problem != "" {
		fmt.Fprintln(stderr, "bench:", problem)
		return o, errors.New(problem)
	}
	return o, nil
}

// run is the command: 0, 1 when a benchmark failed (or, with --strict, missed a target), 64 for wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return exitUsage
	}
	chosen, err := choose(o.only)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	switch {
	case o.list:
		for _, b := range chosen {
			fmt.Fprintf(stdout, "%-10s %s\n", b.name, b.title)
		}
	case o.docs:
		err = writePage(moduleFolder())
	default:
		err = runAll(ctx, o, chosen, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	return 0
}

// moduleFolder is this module's, seen from there or from the repository's root.
func moduleFolder() string {
	if _, err := os.Stat(filepath.Join("bench", "go.mod")); err == nil {
		return "bench"
	}
	return "."
}

// writePage writes docs/performance.md, and its pictures beside the results.
func writePage(module string) error {
	reports, err := readResults(module)
	if err != nil {
		return err
	}
	page, err := report.Page(reports)
	if err != nil {
		return err
	}
	for _, r := range reports {
		err = errors.Join(err, r.WriteChart(filepath.Join(module, "results")))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(module, "..", "docs", "performance.md"), []byte(page), 0o644))
}

func readResults(module string) ([]*report.Report, error) {
	var names []string
	for _, b := range benchmarks() {
		names = append(names, b.name)
	}
	return report.ReadAll(filepath.Join(module, "results"), names)
}

// choose returns the named benchmarks in the order of the list, all for no names.
func choose(only string) ([]benchmark, error) {
	all := benchmarks()
	if only == "" {
		return all, nil
	}
	wanted := strings.Split(only, ",")
	var chosen []benchmark
	for _, b := range all {
		if at := slices.Index(wanted, b.name); at >= 0 {
			chosen = append(chosen, b)
			wanted = slices.Delete(wanted, at, at+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("no benchmark %q; --list shows what there is", wanted[0])
	}
	return chosen, nil
}

// runAll runs the chosen benchmarks one after another. A failure ends that benchmark, not the others.
func runAll(ctx context.Context, o options, chosen []benchmark, stdout, stderr io.Writer) (err error) {
	if o.out == "" {
		o.out = filepath.Join(moduleFolder(), "out")
	}
	if o.dir == "" {
		o.dir = o.out
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	if o.profile != "" {
		stop, err := startProfile(o.profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	missed := 0
	for _, b := range chosen {
		r, runErr := runOne(ctx, o, b, stderr)
		if runErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", b.name, runErr))
			if ctx.Err() != nil {
				return err
			}
			continue
		}
		for _, t := range r.Targets {
			if !t.Reached() {
				missed++
			}
		}
		path, writeErr := r.Write(o.out)
		err = errors.Join(err, writeErr, r.Print(stdout))
		fmt.Fprintf(stderr, "%s: written to %s\n", b.name, path)
	}
	if o.strict && missed > 0 {
		err = errors.Join(err, fmt.Errorf("%d targets were missed", missed))
	}
	return err
}

// runOne gives the benchmark a folder of its own on the measured disk and removes it afterwards.
func runOne(ctx context.Context, o options, b benchmark, stderr io.Writer) (_ *report.Report, err error) {
	folder, err := os.MkdirTemp(o.dir, "files-"+b.name+"-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	folder, err = filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	machine, err := describeMachine(ctx, folder)
	if err != nil {
		return nil, err
	}
	p := newPlan(o, folder, stderr)
	fmt.Fprintf(stderr, "%s: %s; %s\n", b.name, b.title, p.settings)
	r := &report.Report{Name: b.name, Title: b.title, Taken: time.Now().UTC().Format(time.DateOnly), Machine: machine, Settings: p.settings}
	others := othersShare()
	if err := b.run(ctx, p, r); err != nil {
		return nil, err
	}
	r.Machine.Others = others()
	return r, nil
}
