package hold

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenure-go/tenure/fence"
)

// CheckItems returns an [*InvalidError] for items that no store accepts.
func CheckItems(items []Item) error {
	if len(items) < 1 || len(items) > MaxItems {
		return &InvalidError{"items", fmt.Sprintf("%d; want 1 to %d", len(items), MaxItems)}
	}
	seen := map[string]bool{}
	for _, i := range items {
		if err := checkText("item", i.Name, MaxItem); err != nil {
			return err
		}
		if i.Quantity < 0 || i.Quantity > MaxQuantity {
			return &InvalidError{"quantity", fmt.Sprintf("%d of %q; want 0 to %d", i.Quantity, i.Name, int64(MaxQuantity))}
		}
		if seen[i.Name] {
			return &InvalidError{"items", fmt.Sprintf("%q twice", i.Name)}
		}
		seen[i.Name] = true
	}
	return nil
}

// Check returns an [*InvalidError] for a request that no store accepts.
func (r *PlaceRequest) Check() error {
	if err := checkWho(r.ID, r.Actor); err != nil {
		return err
	}
	if len(r.Lines) < 1 || len(r.Lines) > MaxLines {
		return &InvalidError{"lines", fmt.Sprintf("%d; want 1 to %d", len(r.Lines), MaxLines)}
	}
	for _, l := range r.Lines {
		if err := checkText("item", l.Item, MaxItem); err != nil {
			return err
		}
		if l.Quantity < 1 || l.Quantity > MaxQuantity {
			return &InvalidError{"quantity", fmt.Sprintf("%d of %q; want 1 to %d", l.Quantity, l.Item, int64(MaxQuantity))}
		}
	}
	if r.MaxHolds < 0 || r.MaxUnits < 0 {
		return &InvalidError{"limits", "negative"}
	}
	return CheckTTL(r.TTL)
}

// Check returns an [*InvalidError] for a request that no store accepts.
func (r *ConfirmRequest) Check() error {
	if err := checkWho(r.ID, r.Actor); err != nil {
		return err
	}
	if r.Grace < 0 || r.Grace > MaxGrace {
		return &InvalidError{"grace", fmt.Sprintf("%v; want 0 to %v", r.Grace, MaxGrace)}
	}
	return checkText("reference", r.Reference, MaxReference)
}

// CheckExtend returns an [*InvalidError] for an extension that no store accepts.
func CheckExtend(id fence.ID, actor string, ttl time.Duration) error {
	if err := checkWho(id, actor); err != nil {
		return err
	}
	return CheckTTL(ttl)
}

// CheckRelease returns an [*InvalidError] for a release that no store accepts.
func CheckRelease(id fence.ID, actor string) error { return checkWho(id, actor) }

// CheckTTL returns an [*InvalidError] for a TTL that no store accepts.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return &InvalidError{"ttl", fmt.Sprintf("%v; want %v to %v", ttl, MinTTL, MaxTTL)}
	}
	return nil
}

// Check returns an [*InvalidError] for a request that no store accepts.
func (r *ListRequest) Check() error {
	if err := checkOptional("actor", r.Actor, MaxActor); err != nil {
		return err
	}
	if err := checkOptional("item", r.Item, MaxItem); err != nil {
		return err
	}
	for _, s := range r.States {
		if s < Held || s > Late {
			return &InvalidError{"state", s.String()}
		}
	}
	return checkLimit(r.Limit, MaxList)
}

// CheckPage returns an [*InvalidError] for a page of items that no store tells.
func CheckPage(prefix, after string, limit int) error {
	if err := checkOptional("prefix", prefix, MaxItem); err != nil {
		return err
	}
	if err := checkOptional("after", after, MaxItem); err != nil {
		return err
	}
	return checkLimit(limit, MaxList)
}

// CheckPrune returns an [*InvalidError] for what no store forgets.
func CheckPrune(age time.Duration, limit int) error {
	if age < MinPruneAge {
		return &InvalidError{"age", fmt.Sprintf("%v; want at least %v", age, MinPruneAge)}
	}
	return checkLimit(limit, MaxPrune)
}

// Sum returns the lines summed by item, in the order of the names. It returns an [*InvalidError] where a sum is more than MaxQuantity.
func Sum(lines []Line) ([]Line, error) {
	sums := map[string]int64{}
	for _, l := range lines {
		if sums[l.Item] += l.Quantity; sums[l.Item] > MaxQuantity {
			return nil, &InvalidError{"quantity", fmt.Sprintf("more than %d of %q", int64(MaxQuantity), l.Item)}
		}
	}
	all := make([]Line, 0, len(sums))
	for item, n := range sums {
		all = append(all, Line{Item: item, Quantity: n})
	}
	slices.SortFunc(all, func(a, b Line) int { return strings.Compare(a.Item, b.Item) })
	return all, nil
}

func checkWho(id fence.ID, actor string) error {
	if id.IsZero() {
		return &InvalidError{"id", "none"}
	}
	return checkText("actor", actor, MaxActor)
}

func checkLimit(limit, most int) error {
	if limit < 1 || limit > most {
		return &InvalidError{"limit", fmt.Sprintf("%d; want 1 to %d", limit, most)}
	}
	return nil
}

func checkOptional(field, text string, most int) error {
	if text == "" {
		return nil
	}
	return checkText(field, text, most)
}

func checkText(field, text string, most int) error {
	switch {
	case text == "":
		return &InvalidError{field, "empty"}
	case len(text) > most:
		return &InvalidError{field, fmt.Sprintf("%d bytes; at most %d", len(text), most)}
	case !utf8.ValidString(text):
		return &InvalidError{field, "not UTF-8"}
	case strings.ContainsFunc(text, unicode.IsControl):
		return &InvalidError{field, fmt.Sprintf("%q has a control character", text)}
	}
	return nil
}
