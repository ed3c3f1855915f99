package client_test

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/hold/holdtest"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/operation/operationtest"
)

// play runs each case of a suite through a client, on an authority of its own.
func play[H any](t *testing.T, name string, runs func(context.Context, H) error, h H) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		if err := runs(t.Context(), h); err != nil {
			t.Error(err)
		}
	})
}

func TestConformance(t *testing.T) {
	for _, c := range leasetest.Cases() {
		play(t, c.Name, c.Run, leasetest.Harness(leaseWorld{newWorld(t)}))
	}
}

func TestOperatorConformance(t *testing.T) {
	for _, c := range leasetest.OperatorCases() {
		play(t, c.Name, c.Run, leasetest.OperatorHarness(leaseWorld{newWorld(t)}))
	}
}

func TestEqualityConformance(t *testing.T) {
	for _, c := range leasetest.EqualityCases() {
		play(t, c.Name, c.Run, leasetest.ManualHarness(leaseWorld{newManualWorld(t)}))
	}
}

func TestHoldConformance(t *testing.T) {
	for _, c := range holdtest.Cases() {
		play(t, c.Name, c.Run, holdtest.Harness(holdWorld{newWorld(t)}))
	}
}

func TestHoldEqualityConformance(t *testing.T) {
	for _, c := range holdtest.EqualityCases() {
		play(t, c.Name, c.Run, holdtest.ManualHarness(holdWorld{newManualWorld(t)}))
	}
}

func TestOperationConformance(t *testing.T) {
	for _, c := range operationtest.Cases() {
		play(t, c.Name, c.Run, operationtest.Harness(operationWorld{newWorld(t)}))
	}
}

func TestOperationEqualityConformance(t *testing.T) {
	for _, c := range operationtest.EqualityCases() {
		play(t, c.Name, c.Run, operationtest.ManualHarness(operationWorld{newManualWorld(t)}))
	}
}
