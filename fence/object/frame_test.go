package object

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

func longest() fence.Claim {
	return fence.Claim{Authority: fence.ID{1}, Acquisition: fence.ID{2}, Name: strings.Repeat("ü", fence.MaxName/2), Token: 1<<63 - 1}
}

// TestFrame: what encode writes, decode reads, and nothing else.
func TestFrame(t *testing.T) {
	for _, content := range []string{"", "x", "\n\n", strings.Repeat("y", 2*maxHead), magic} {
		f := newFrame(longest(), true, []byte(content))
		f.nonce = newNonce()
		text := f.encode()
		got, err := decode("k", text, true)
		if err != nil || got.claim != f.claim || got.nonce != f.nonce || !got.present || string(got.content) != content || got.content == nil {
			t.Errorf("%.20q: %+v, %v", content, got, err)
		}
		head, err := decode("k", text[:min(len(text), maxHead)], false)
		if err != nil || head.sum != f.sum || head.content != nil {
			t.Errorf("the head of %.20q: %+v, %v", content, head, err)
		}
	}
	f := newFrame(longest(), true, []byte("content"))
	f.nonce = newNonce()
	good := string(f.encode())
	gone := newFrame(longest(), false, nil)
	gone.nonce = newNonce()
	for what, text := range map[string]string{
		"empty":              "",
		"no line":            strings.TrimSuffix(good, "\ncontent"),
		"another version":    strings.Replace(good, magic, "tenure-object2", 1),
		"content changed":    good + "x",
		"content cut":        good[:len(good)-1],
		"nonce cut":          strings.Replace(good, f.nonce, f.nonce[:30], 1),
		"nonce in capitals":  strings.Replace(good, f.nonce, strings.Repeat("AB", 16), 1),
		"no word":            strings.Replace(good, " present ", " ", 1),
		"another word":       strings.Replace(good, " present ", " there ", 1),
		"two blanks":         strings.Replace(good, " present ", "  present ", 1),
		"claim changed":      strings.Replace(good, "9223372036854775807", "09", 1),
		"deleted with bytes": string(gone.encode()) + "x",
		"line too long":      magic + " " + strings.Repeat("x", maxHead) + "\n",
	} {
		if got, err := decode("k", []byte(text), true); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

// FuzzDecode: whatever is in a bucket, it is read as what encode would write, or refused.
func FuzzDecode(f *testing.F) {
	whole := newFrame(longest(), true, []byte("content"))
	whole.nonce = newNonce()
	f.Add(whole.encode())
	f.Add([]byte(magic + " a b c d\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := decode("k", text, true)
		if err == nil && !bytes.Equal(got.encode(), text) {
			t.Errorf("%q is read as %q", text, got.encode())
		}
	})
}
