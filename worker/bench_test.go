package worker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// fountain is a store that always has work, and costs nothing: what remains is the worker's own cost.
type fountain struct {
	worker.Source
	left, done int
	number     fence.Token
	over       context.CancelFunc
}

func (f *fountain) Claim(_ context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	n := min(req.Limit, f.left)
	f.left -= n
	jobs := make([]operation.Job, n)
	for i := range jobs {
		f.number++
		jobs[i] = operation.Job{Ref: operation.Ref{ID: "a", Number: f.number}, Kind: "noop", Ordinal: 1, Remaining: req.TTL, TimeLeft: req.Kinds[0].Timeout}
	}
	return jobs, nil
}

func (f *fountain) Renew(context.Context, operation.RenewRequest) ([]operation.Ref, error) {
	return nil, nil
}

func (f *fountain) Complete(_ context.Context, all []operation.Completion) ([]error, error) {
	if f.done -= len(all); f.done == 0 {
		f.over()
	}
	return make([]error, len(all)), nil
}

// BenchmarkNoop is an operation without effect, from its claim to its report, without what a store costs.
func BenchmarkNoop(b *testing.B) {
	for _, slots := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("slots=", slots), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			f := &fountain{left: b.N, done: b.N, over: cancel}
			w, err := worker.New(f, worker.Options{}, worker.Handle(worker.Handler[struct{}, struct{}]{Kind: "noop", Concurrency: slots, Local: true,
				Perform: func(context.Context, *worker.Attempt, struct{}) (struct{}, error) { return struct{}{}, nil }}))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			if err := w.Run(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}
