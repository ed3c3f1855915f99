package lease

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tenure-go/tenure/fence"
)

// Check returns an error matching [ErrInvalid] unless the request is in range. Stores call it first.
func (r OpenRequest) Check(g Guarantees) error {
	if r.ID.IsZero() {
		return &InvalidError{"session", "no id"}
	}
	if len(r.Owner) > MaxOwner || !isText(r.Owner) {
		return &InvalidError{"owner", fmt.Sprintf("want valid UTF-8 of at most %d bytes, without NUL", MaxOwner)}
	}
	if r.TTL < g.MinTTL || r.TTL > g.MaxTTL {
		return &InvalidError{"ttl", fmt.Sprintf("want %v to %v, got %v", g.MinTTL, g.MaxTTL, r.TTL)}
	}
	if !g.expresses(r.TTL) {
		return &InvalidError{"ttl", fmt.Sprintf("this store keeps multiples of %v, got %v", g.Grain, r.TTL)}
	}
	return nil
}

// Check returns an error matching [ErrInvalid] unless the request is in range. Stores call it first.
func (r RenewRequest) Check() error {
	if r.Session.IsZero() {
		return &InvalidError{"session", "no id"}
	}
	if len(r.Release) > MaxRelease {
		return &InvalidError{"release", fmt.Sprintf("more than %d acquisitions in one renewal", MaxRelease)}
	}
	for _, a := range r.Release {
		if err := checkAcquisition(a.ID, a.Names, MaxNames); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error matching [ErrInvalid] unless the request is in range. Stores call it first.
func (r AcquireRequest) Check(g Guarantees) error {
	if r.Session.IsZero() {
		return &InvalidError{"session", "no id"}
	}
	if r.MaxHold != 0 && (r.MaxHold < g.MinTTL || r.MaxHold > MaxMaxHold) {
		return &InvalidError{"max hold", fmt.Sprintf("want 0 for none, or %v to %v, got %v", g.MinTTL, MaxMaxHold, r.MaxHold)}
	}
	if !g.expresses(r.MaxHold) {
		return &InvalidError{"max hold", fmt.Sprintf("this store keeps multiples of %v, got %v", g.Grain, r.MaxHold)}
	}
	return checkAcquisition(r.ID, r.Names, g.MaxNames)
}

// Check returns an error matching [ErrInvalid] unless the request is in range. Stores call it first.
func (r ReleaseRequest) Check() error {
	if r.Session.IsZero() {
		return &InvalidError{"session", "no id"}
	}
	return checkAcquisition(r.ID, r.Names, MaxNames)
}

// Check returns an error matching [ErrInvalid] unless the request is in range. Stores call it first.
func (r RevokeRequest) Check() error {
	if r.Token <= 0 {
		return &InvalidError{"token", "want the positive token that was seen"}
	}
	if r.Reason == "" || len(r.Reason) > MaxReason || !isText(r.Reason) {
		return &InvalidError{"reason", fmt.Sprintf("want valid UTF-8 of 1 to %d bytes, without NUL", MaxReason)}
	}
	return CheckName(r.Name)
}

// Check returns an error matching [ErrInvalid] unless the request is in range. Stores call it first.
func (r ListRequest) Check() error {
	if r.Limit < 1 || r.Limit > MaxList {
		return &InvalidError{"limit", fmt.Sprintf("want 1 to %d", MaxList)}
	}
	if len(r.Prefix) > fence.MaxName || len(r.After) > fence.MaxName {
		return &InvalidError{"prefix", "longer than any name"}
	}
	if !isText(r.Prefix) || !isText(r.After) {
		return &InvalidError{"prefix", "want valid UTF-8 without NUL, as names are"}
	}
	return nil
}

// isText reports whether every store can keep text: PostgreSQL takes no NUL.
func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// CheckName is [fence.CheckName] with an error of this package's kind.
func CheckName(name string) error {
	if err := fence.CheckName(name); err != nil {
		return &InvalidError{"name", err.Error()}
	}
	return nil
}

func checkAcquisition(id fence.ID, names []string, most int) error {
	if id.IsZero() {
		return &InvalidError{"acquisition", "no id"}
	}
	if len(names) == 0 || len(names) > most {
		return &InvalidError{"names", fmt.Sprintf("want 1 to %d, got %d", most, len(names))}
	}
	for _, name := range names {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	if len(names) > 1 {
		sorted := slices.Sorted(slices.Values(names))
		if len(slices.Compact(sorted)) != len(names) {
			return &InvalidError{"names", "a name is given twice"}
		}
	}
	return nil
}
