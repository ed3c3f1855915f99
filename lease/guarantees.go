package lease

import (
	"errors"
	"fmt"
	"time"
)

// Guarantees states what a store keeps. Numbers are limits; words are properties.
type Guarantees struct {
	Store          string // "memory", "sqlite", ...
	DurableGrants  bool   // a grant that was told survives a crash of every process and of the machine
	TokensSurvive  bool   // no token repeats across restart, restore of a closed store, or failover
	PreciseExpiry  bool   // an expired lease can be taken at once, and never later than its expiry
	FairWaiting    bool   // waiters are served in the order in which they came
	CoLocated      bool   // the strict check runs in the transaction of the protected write
	Provisional    bool   // losing a key may lose ownership: never the only guard of something sold
	Shared         bool   // more than one process can use the authority
	MaxNames       int    // names in one Acquire
	MinTTL, MaxTTL time.Duration
	Grain          time.Duration // TTL and MaxHold are whole multiples of it; others are refused, never rounded. 0: any
}

// expresses reports whether the store keeps d exactly.
func (g Guarantees) expresses(d time.Duration) bool { return g.Grain <= 0 || d%g.Grain == 0 }

// Need is a requirement on a store, for [Require].
type Need struct {
	what string
	met  func(Guarantees) bool
}

// NeedDurableGrants requires that a grant that was told survives a crash of every process and of the machine.
func NeedDurableGrants() Need {
	return Need{"durable grants", func(g Guarantees) bool { return g.DurableGrants }}
}

// NeedTokensSurvive requires that no token repeats across restart, restore of a closed store, or failover.
func NeedTokensSurvive() Need {
	return Need{"tokens that survive restarts", func(g Guarantees) bool { return g.TokensSurvive }}
}

// NeedPreciseExpiry requires that an expired lease can be taken at once.
func NeedPreciseExpiry() Need {
	return Need{"precise expiry", func(g Guarantees) bool { return g.PreciseExpiry }}
}

// NeedCoLocated requires the strict check in the transaction of the protected write.
func NeedCoLocated() Need {
	return Need{"co-located fencing", func(g Guarantees) bool { return g.CoLocated }}
}

// NeedFairWaiting requires that waiters are served in order.
func NeedFairWaiting() Need {
	return Need{"fair waiting", func(g Guarantees) bool { return g.FairWaiting }}
}

// NeedShared requires an authority that more than one process can use.
func NeedShared() Need {
	return Need{"use by several processes", func(g Guarantees) bool { return g.Shared }}
}

// NeedNotProvisional refuses stores in which losing a key may lose ownership.
func NeedNotProvisional() Need {
	return Need{"more than provisional ownership", func(g Guarantees) bool { return !g.Provisional }}
}

// NeedNames requires that one Acquire takes n names.
func NeedNames(n int) Need {
	return Need{fmt.Sprintf("%d names in one acquire", n), func(g Guarantees) bool { return g.MaxNames >= n }}
}

// NeedTTL requires that the store can express ttl exactly.
func NeedTTL(ttl time.Duration) Need {
	return Need{fmt.Sprintf("a TTL of %v", ttl), func(g Guarantees) bool { return ttl >= g.MinTTL && ttl <= g.MaxTTL && g.expresses(ttl) }}
}

// Require returns an error matching [ErrInvalid] that lists every need which the store does not meet, so
// that a program fails when it starts and not when the guarantee is first missed. It performs no I/O.
func Require(store Store, needs ...Need) error {
	g := store.Guarantees()
	var missing []error
	for _, need := range needs {
		if need.met == nil || !need.met(g) {
			missing = append(missing, &InvalidError{"store", fmt.Sprintf("the %s store does not offer %s", g.Store, need.what)})
		}
	}
	return errors.Join(missing...)
}
