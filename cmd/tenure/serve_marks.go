package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/upstream"
)

// marksAtOnce is how many marks are written at a time on PostgreSQL, and how many claims are verified.
const marksAtOnce = 4

// marks is what a server keeps for resources that cannot: in the store, durable before it is told.
type marks struct{ enter, verify *upstream.Opened }

// openMarks opens the store for marks, beside what serves its leases.
func openMarks(ctx context.Context, l location, log *slog.Logger) (*marks, error) {
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	o := upstream.CheckOptions{HighWater: true, AtOnce: marksAtOnce, Log: log}
	if l.postgres {
		o.URL = l.url
	} else {
		o.Path = l.path
	}
	enter, err := upstream.OpenCheck(ctx, o)
	if err != nil {
		return nil, &storeError{fmt.Errorf("%s: %w", l.shown, l.redact(err))}
	}
	o.HighWater = false
	verify, err := upstream.OpenCheck(ctx, o)
	if err != nil {
		return nil, errors.Join(&storeError{fmt.Errorf("%s: %w", l.shown, l.redact(err))}, enter.Close(ctx))
	}
	return &marks{enter, verify}, nil
}

func (m *marks) close(ctx context.Context) error {
	return errors.Join(m.enter.Close(ctx), m.verify.Close(ctx))
}

// EnterMark is part of [server.Marks].
func (m *marks) EnterMark(ctx context.Context, resource string, claim fence.Claim) error {
	return m.enter.Within(ctx, resource, claim, func(context.Context) error { return nil })
}

// AdmitMark is part of [server.Marks]: a mark that is entered for every write admits none that Admit would refuse.
func (m *marks) AdmitMark(ctx context.Context, resource string, claim fence.Claim) error {
	return m.EnterMark(ctx, resource, claim)
}

// VerifyClaim is part of [server.Marks].
func (m *marks) VerifyClaim(ctx context.Context, claim fence.Claim) error {
	return m.verify.Within(ctx, claim.Name, claim, func(context.Context) error { return nil })
}
