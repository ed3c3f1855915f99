package lease_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/memory"
)

// stating is a store that states something else than it is.
type stating struct {
	lease.Store
	g lease.Guarantees
}

func (s stating) Guarantees() lease.Guarantees { return s.g }

// requires holds a form of Require to this: each need is met by a store that offers all, and refused, by name, by one that lacks that alone.
func requires(require func(lease.Store, ...lease.Need) error) error {
	all := lease.Guarantees{Store: "s", DurableGrants: true, TokensSurvive: true, PreciseExpiry: true, FairWaiting: true, CoLocated: true, Shared: true,
		MaxNames: 2, MinTTL: time.Second, MaxTTL: time.Minute, Grain: time.Millisecond}
	for what, c := range map[string]struct {
		need lease.Need
		lack func(*lease.Guarantees)
	}{
		"durable grants":               {lease.NeedDurableGrants(), func(g *lease.Guarantees) { g.DurableGrants = false }},
		"tokens that survive restarts": {lease.NeedTokensSurvive(), func(g *lease.Guarantees) { g.TokensSurvive = false }},
		"precise expiry":               {lease.NeedPreciseExpiry(), func(g *lease.Guarantees) { g.PreciseExpiry = false }},
		"co-located fencing":           {lease.NeedCoLocated(), func(g *lease.Guarantees) { g.CoLocated = false }},
		"fair waiting":                 {lease.NeedFairWaiting(), func(g *lease.Guarantees) { g.FairWaiting = false }},
		"use by several processes":     {lease.NeedShared(), func(g *lease.Guarantees) { g.Shared = false }},
		"more than provisional":        {lease.NeedNotProvisional(), func(g *lease.Guarantees) { g.Provisional = true }},
		"2 names":                      {lease.NeedNames(2), func(g *lease.Guarantees) { g.MaxNames = 1 }},
		"a TTL of 1s":                  {lease.NeedTTL(time.Second), func(g *lease.Guarantees) { g.MinTTL = time.Second + 1 }},
		"a TTL of 1m0s":                {lease.NeedTTL(time.Minute), func(g *lease.Guarantees) { g.MaxTTL = time.Minute - 1 }},
		"a TTL of 1.001s":              {lease.NeedTTL(1001 * time.Millisecond), func(g *lease.Guarantees) { g.Grain = time.Second }},
	} {
		store := memory.New(memory.Options{})
		if err := require(stating{store, all}, c.need); err != nil {
			return fmt.Errorf("a store that offers all: %w", err)
		}
		lacking := all
		c.lack(&lacking)
		err := require(stating{store, lacking}, lease.NeedNames(1), c.need)
		if !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "1 names") {
			return fmt.Errorf("without %s: %w", what, err)
		}
	}
	return nil
}

// TestRequire, and that several needs are all named.
func TestRequire(t *testing.T) {
	if err := requires(lease.Require); err != nil {
		t.Error(err)
	}
	err := lease.Require(memory.New(memory.Options{}), lease.NeedDurableGrants(), lease.NeedShared(), lease.Need{})
	if err == nil || !strings.Contains(err.Error(), "durable grants") || !strings.Contains(err.Error(), "several processes") || len(strings.Split(err.Error(), "\n")) != 3 {
		t.Errorf("%v", err)
	}
}

// TestARequireThatAsksTheFirstNeedAloneIsCaught by [TestRequire].
func TestARequireThatAsksTheFirstNeedAloneIsCaught(t *testing.T) {
	if requires(func(s lease.Store, needs ...lease.Need) error { return lease.Require(s, needs[0]) }) == nil {
		t.Error("it passes")
	}
}
