package file

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// guarantee is what must hold of a guarded file that was made with the given parts.
type guarantee func(ctx context.Context, f *File) bool

func guarantees() map[string]guarantee {
	replace := func(ctx context.Context, f *File, token fence.Token, text string) error {
		return f.Replace(ctx, claim(token), []byte(text))
	}
	holds := func(ctx context.Context, f *File, text string) bool {
		got, err := f.Read(ctx)
		return err == nil && string(got) == text
	}
	return map[string]guarantee{
		"a lower token is refused": func(ctx context.Context, f *File) bool {
			err := errors.Join(replace(ctx, f, 5, "a"), replace(ctx, f, 7, "b"))
			refused := new(fence.RefusedError)
			return err == nil && errors.As(replace(ctx, f, 5, "late"), &refused) && refused.Newer == 7 && holds(ctx, f, "b") &&
				errors.Is(f.Append(ctx, claim(6), []byte("late")), fence.ErrRefused) && holds(ctx, f, "b")
		},
		"an equal token is accepted": func(ctx context.Context, f *File) bool {
			return replace(ctx, f, 5, "a") == nil && replace(ctx, f, 5, "b") == nil && f.Append(ctx, claim(5), []byte("c")) == nil && holds(ctx, f, "bc")
		},
		"entering raises the mark": func(ctx context.Context, f *File) bool {
			err := replace(ctx, f, 5, "a")
			got, entered := f.Enter(ctx, claim(7))
			return err == nil && entered == nil && string(got) == "a" && errors.Is(replace(ctx, f, 5, "late"), fence.ErrRefused) && holds(ctx, f, "a")
		},
		"a refusal changes nothing": func(ctx context.Context, f *File) bool {
			err := replace(ctx, f, 7, "a")
			called := false
			change := func([]byte) ([]byte, error) { called = true; return []byte("late"), nil }
			_, entered := f.Enter(ctx, claim(5))
			return err == nil && errors.Is(f.Update(ctx, claim(5), change), fence.ErrRefused) && !called &&
				errors.Is(entered, fence.ErrRefused) && replace(ctx, f, 7, "b") == nil && holds(ctx, f, "b")
		},
		"another name or authority is foreign": func(ctx context.Context, f *File) bool {
			name, authority := claim(9), claim(9)
			name.Name, authority.Authority = "orders/18", id(8)
			return replace(ctx, f, 5, "a") == nil && errors.Is(f.Replace(ctx, name, nil), fence.ErrForeign) &&
				errors.Is(f.Append(ctx, authority, []byte("b")), fence.ErrForeign) && holds(ctx, f, "a")
		},
		"an allowed name has a mark of its own": func(ctx context.Context, f *File) bool {
			other := claim(3)
			other.Name = "orders/18"
			if replace(ctx, f, 5, "a") != nil || f.Allow(ctx, id(1), "orders/18") != nil || f.Allow(ctx, id(1), "orders/18") != nil {
				return false
			}
			lower := other
			lower.Token = 2
			return f.Append(ctx, other, []byte("b")) == nil && errors.Is(f.Append(ctx, lower, []byte("c")), fence.ErrRefused) &&
				errors.Is(replace(ctx, f, 4, "late"), fence.ErrRefused) && holds(ctx, f, "ab")
		},
		"an update sees what it replaces": func(ctx context.Context, f *File) bool {
			add := func(text string) func([]byte) ([]byte, error) {
				return func(old []byte) ([]byte, error) { return append(old, text...), nil }
			}
			return f.Update(ctx, claim(5), add("a")) == nil && f.Update(ctx, claim(5), add("b")) == nil && holds(ctx, f, "ab")
		},
		"a change that fails writes nothing, and has entered": func(ctx context.Context, f *File) bool {
			no := errors.New("no")
			return replace(ctx, f, 5, "a") == nil && errors.Is(f.Update(ctx, claim(7), func([]byte) ([]byte, error) { return nil, no }), no) &&
				holds(ctx, f, "a") && errors.Is(replace(ctx, f, 6, "late"), fence.ErrRefused)
		},
		"no claim is invalid": func(ctx context.Context, f *File) bool {
			_, err := f.Enter(ctx, claim(0))
			return errors.Is(err, fence.ErrInvalid) && errors.Is(f.Replace(ctx, fence.Claim{}, nil), fence.ErrInvalid)
		},
	}
}

// kept reports whether a guarantee holds with the given parts.
func kept(t *testing.T, g guarantee, change func(*parts)) bool {
	t.Helper()
	p := realParts()
	change(&p)
	f, err := open(t.Context(), filepath.Join(t.TempDir(), "orders.txt"), Options{}, p)
	if err != nil {
		t.Fatal(err)
	}
	return g(t.Context(), f)
}

func TestRules(t *testing.T) {
	t.Parallel()
	for name, g := range guarantees() {
		if !kept(t, g, func(*parts) {}) {
			t.Errorf("not kept: %s", name)
		}
	}
	for twin, name := range map[string]string{
		"lower accepted": "a lower token is refused", "equal refused": "an equal token is accepted", "enter raises nothing": "entering raises the mark",
	} {
		if kept(t, guarantees()[name], twins()[twin]) {
			t.Errorf("the twin %q is not caught: %s", twin, name)
		}
	}
}
