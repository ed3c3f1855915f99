package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/store/sqlite"
)

const shortMethod = "The time from starting a process to its end, one after another in turns. `tenure run NAME -- true` opens the file, opens a session, acquires the name, runs the program, releases and closes; " +
	"beside it the program alone and `tenure version`, which starts the same binary and touches no file. *Open elsewhere*: another process has the file open meanwhile, so nothing has to be recovered or checkpointed."

// shortRuns is how many times each program runs in a round.
const shortRuns = 100

// shortBound is how long one run may take before the benchmark fails.
const shortBound = 20 * time.Second

type program struct {
	name string
	args []string
}

func runShort(ctx context.Context, p *plan, r *report.Report) (err error) {
	r.Method = shortMethod
	tenure, err := tenureBinary(ctx, p)
	if err != nil {
		return err
	}
	nothing, err := exec.LookPath("true")
	if err != nil {
		return err
	}
	elsewhere, err := sqlite.Open(ctx, sqlite.Config{Path: p.path("elsewhere.db")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, elsewhere.Shutdown(context.WithoutCancel(ctx))) }()
	const plain, open, alone, version = "tenure run -- true", "tenure run -- true, open elsewhere", "true alone", "tenure version"
	programs := []program{
		{alone, []string{nothing}},
		{version, []string{tenure, "version"}},
		{plain, []string{tenure, "run", "--store", "sqlite:" + p.path("short.db"), "--try", "bench/short", "--", nothing}},
		{open, []string{tenure, "run", "--store", "sqlite:" + elsewhere.Path(), "--try", "bench/short", "--", nothing}},
	}
	p50, p99 := map[string][]float64{}, map[string][]float64{}
	err = p.eachRound(ctx, func(int) error {
		took := map[string][]float64{}
		for range p.pick(shortRuns, 3) {
			for _, program := range programs {
				d, err := timeProcess(ctx, program.args)
				if err != nil {
					return err
				}
				took[program.name] = append(took[program.name], millis(d))
			}
			slices.Reverse(programs)
		}
		for name, each := range took {
			p50[name] = append(p50[name], stats.Percentile(each, 50))
			p99[name] = append(p99[name], stats.Percentile(each, 99))
		}
		return nil
	})
	if err != nil {
		return err
	}
	t := report.Table{Title: fmt.Sprintf("Whole process, %d runs of each in a round:", p.pick(shortRuns, 3)), Label: "program", Columns: []string{"p50, ms", "p99, ms"}}
	for _, name := range []string{alone, version, plain, open} {
		t.Rows = append(t.Rows, report.Row{Label: name, Cells: []report.Cell{report.Rounds(p50[name]), report.Rounds(p99[name])}})
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// tenureBinary is the command to time, built from the root module unless one was given.
func tenureBinary(ctx context.Context, p *plan) (string, error) {
	if p.tenure != "" {
		return filepath.Abs(p.tenure)
	}
	target := p.path("tenure")
	build := exec.CommandContext(ctx, "go", "build", "-o", target, "./cmd/tenure")
	build.Dir = filepath.Join(moduleFolder(), "..")
	build.Env = append(os.Environ(), "GOWORK=off") // as importers build it
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building cmd/tenure, which --tenure would spare: %w\n%s", err, text)
	}
	return target, nil
}

func timeProcess(ctx context.Context, args []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, shortBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr limited
	cmd.Stderr = &stderr
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		return took, fmt.Errorf("%v: %w: %s", args, errors.Join(err, ctx.Err()), stderr.text)
	}
	return took, nil
}

// limited keeps the first bytes that are written to it.
type limited struct{ text []byte }

// Write is part of [io.Writer].
func (l *limited) Write(text []byte) (int, error) {
	const most = 4096
	l.text = append(l.text, text[:min(len(text), most-len(l.text))]...)
	return len(text), nil
}
