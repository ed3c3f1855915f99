package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/bench/stats"
)

// subject is one side of a comparison.
type subject struct {
	name string
	// cycle does one unit of work, an acquire and a release where it is about leases, for goroutine g, whose count of
	// cycles is n, and returns how long the first half took.
	cycle func(ctx context.Context, g, n int) (time.Duration, error)
	// over is called when the measurement has ended, if it is not nil; cycles may return errOver from then on.
	over func()
	// server is the processor time that the server has used so far, where there is one.
	server func() time.Duration
}

// sample is what a measurement of a subject gave.
type sample struct {
	rate    float64   // cycles per second
	cpu     float64   // microseconds of processor time per cycle, of the whole process
	server  float64   // the same of the server, 0 where there is none or it cannot be read
	acquire []float64 // microseconds each
}

// The phases of a measurement.
const (
	warming int32 = iota
	measuring
	stopping
)

// drive runs the subject on so many goroutines for d, after a warm-up of a tenth of it. What starts
// or ends outside of d is not counted, so neither the start nor the end of the goroutines shows.
func drive(ctx context.Context, s subject, goroutines int, d time.Duration) (sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.server == nil {
		s.server = func() time.Duration { return 0 }
	}
	var phase atomic.Int32
	var wg sync.WaitGroup
	counts := make([]int, goroutines)
	acquires := make([][]float64, goroutines)
	errs := make([]error, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			for n := 0; phase.Load() != stopping; n++ {
				took, err := s.cycle(ctx, g, n)
				if errors.Is(err, errOver) && phase.Load() == stopping {
					return
				}
				if err != nil {
					errs[g] = fmt.Errorf("%s, goroutine %d: %w", s.name, g, err)
					cancel()
					return
				}
				if phase.Load() == measuring {
					counts[g]++
					acquires[g] = append(acquires[g], micros(took))
				}
			}
		})
	}
	err := pause(ctx, d/10)
	served := s.server()
	start, cpu := time.Now(), processTime()
	phase.Store(measuring)
	if err == nil {
		err = pause(ctx, d)
	}
	phase.Store(stopping)
	elapsed, spent := time.Since(start), processTime()-cpu
	served = s.server() - served
	if s.over != nil {
		s.over()
	}
	wg.Wait()
	if failed := errors.Join(errs...); failed != nil {
		return sample{}, failed
	}
	if err != nil {
		return sample{}, err
	}
	var out sample
	total := 0
	for g := range goroutines {
		total += counts[g]
		out.acquire = append(out.acquire, acquires[g]...)
	}
	out.rate = float64(total) / elapsed.Seconds()
	out.cpu = micros(spent) / float64(max(total, 1))
	out.server = micros(served) / float64(max(total, 1))
	return out, nil
}

// results collects the samples of subjects, by how many goroutines ran, in the order of the rounds.
type results map[string]map[int]*series

type series struct {
	rates      []float64
	cpu        []float64
	server     []float64
	acquireP50 []float64
	acquireP99 []float64
}

func (r results) add(name string, goroutines int, s sample) {
	if r[name] == nil {
		r[name] = map[int]*series{}
	}
	if r[name][goroutines] == nil {
		r[name][goroutines] = &series{}
	}
	at := r[name][goroutines]
	at.rates = append(at.rates, s.rate)
	at.cpu = append(at.cpu, s.cpu)
	at.server = append(at.server, s.server)
	at.acquireP50 = append(at.acquireP50, stats.Percentile(s.acquire, 50))
	at.acquireP99 = append(at.acquireP99, stats.Percentile(s.acquire, 99))
}

// of returns the series, empty where nothing was measured.
func (r results) of(name string, goroutines int) series {
	if s := r[name][goroutines]; s != nil {
		return *s
	}
	return series{}
}
