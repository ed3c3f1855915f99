package fence_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

func id(last byte) fence.ID {
	id := fence.ID{0: 1, 6: 0x70, 8: 0x80}
	id[15] = last
	return id
}

func claim(token fence.Token) fence.Claim {
	return fence.Claim{Authority: id(1), Name: "orders/17", Acquisition: id(2), Token: token}
}

func TestClaimText(t *testing.T) {
	const text = "tenure1:01000000-0000-7000-8000-000000000001:01000000-0000-7000-8000-000000000002:7:orders/17"
	if got := claim(7).String(); got != text {
		t.Fatalf("text %q, want %q", got, text)
	}
	for _, name := range []string{"a", "a/", "a/b", "..", "%", "%2e", `"quoted" 'name'`, "é", "e\u0301", "日本", "a:b:c", "a b", strings.Repeat("é", fence.MaxName/2)} {
		c := claim(1 << 53)
		c.Name = name
		text := c.String()
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\'' }) {
			t.Errorf("%q does not survive a header: %q", name, text)
		}
		back, err := fence.ParseClaim(text)
		if err != nil || back != c {
			t.Errorf("%q came back as %+v, %v", text, back, err)
		}
	}
}

// Two texts never mean one claim, and nothing half right is taken.
func TestClaimTextIsCanonical(t *testing.T) {
	good := claim(7).String()
	for _, bad := range []string{
		"", "tenure1", good + ":", " " + good, good + "\n", strings.ToUpper(good), strings.Replace(good, "tenure1", "tenure2", 1),
		strings.Replace(good, ":7:", ":07:", 1), strings.Replace(good, ":7:", ":+7:", 1), strings.Replace(good, ":7:", ":0:", 1),
		strings.Replace(good, ":7:", ":-7:", 1), strings.Replace(good, ":7:", ":9223372036854775808:", 1), strings.Replace(good, ":7:", ":7e0:", 1),
		strings.Replace(good, "orders/17", "orders%2F17", 1), strings.Replace(good, "orders/17", "%c3%A9", 1),
		strings.Replace(good, "orders/17", "", 1), strings.Replace(good, "orders/17", "a%00b", 1), strings.Replace(good, "orders/17", "a#3", 1),
		strings.Replace(good, "orders/17", "a%23", 1), strings.Replace(good, "orders/17", "%FF", 1), strings.Replace(good, "orders/17", "%", 1),
		strings.Replace(good, "01000000-0000-7000-8000-000000000001", "00000000-0000-0000-0000-000000000000", 1),
		strings.Replace(good, "orders/17", strings.Repeat("a", fence.MaxName+1), 1), strings.Repeat("x", 1<<20),
	} {
		if c, err := fence.ParseClaim(bad); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%.80q was read as %+v, %v", bad, c, err)
		}
	}
}

func FuzzParseClaim(f *testing.F) {
	f.Add(claim(7).String())
	f.Add("tenure1:::1:")
	f.Add("tenure1:01000000-0000-7000-8000-000000000001:01000000-0000-7000-8000-000000000002:9223372036854775807:%C3%A9")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := fence.ParseClaim(text)
		if err != nil {
			if !errors.Is(err, fence.ErrInvalid) || c != (fence.Claim{}) {
				t.Fatalf("%q: %+v, %v", text, c, err)
			}
			return
		}
		if c.String() != text {
			t.Fatalf("%q is read as the same claim as %q", text, c.String())
		}
		if err := c.Check(); err != nil {
			t.Fatalf("%q is read as a claim that is none: %v", text, err)
		}
	})
}

func TestClaimFor(t *testing.T) {
	if err := claim(1).For("orders/17"); err != nil {
		t.Error(err)
	}
	foreign := new(fence.ForeignError)
	if err := claim(1).For("orders/1"); !errors.As(err, &foreign) || foreign.Name != "orders/1" {
		t.Errorf("a claim to orders/17 for orders/1: %v", err)
	}
}

// Case L92: a 64-bit token never passes through a JSON number.
func TestL92TokensAreTextInJSON(t *testing.T) {
	raw, err := json.Marshal(claim(1<<62 + 1))
	if err != nil || !strings.Contains(string(raw), `"token":"4611686018427387905"`) {
		t.Fatalf("%s, %v", raw, err)
	}
	var back fence.Claim
	if err := json.Unmarshal(raw, &back); err != nil || back != claim(1<<62+1) {
		t.Fatalf("%+v, %v", back, err)
	}
	for _, bad := range []string{`7`, `7.0`, `"7.0"`, `"-7"`, `"9223372036854775808"`, `"1e3"`, `true`} {
		var token fence.Token
		if err := json.Unmarshal([]byte(bad), &token); err == nil {
			t.Errorf("%s was read as token %d", bad, token)
		}
	}
	if _, err := fence.Token(-1).MarshalText(); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a negative token as text: %v", err)
	}
}

func TestIDs(t *testing.T) {
	text := id(9).String()
	if back, err := fence.ParseID(text); err != nil || back != id(9) {
		t.Errorf("%q came back as %v, %v", text, back, err)
	}
	for _, bad := range []string{"", text[1:], text + "0", strings.ToUpper("abcdef00" + text[8:]), strings.Replace(text, "-", "_", 1), strings.Replace(text, "0", "g", 1), fence.ID{}.String()} {
		if _, err := fence.ParseID(bad); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q as an id: %v", bad, err)
		}
	}
	if !id(1).Less(id(2)) || id(2).Less(id(1)) || id(1).Less(id(1)) || !(fence.ID{}).IsZero() || id(1).IsZero() {
		t.Error("ids do not compare byte by byte")
	}
	var back struct{ ID fence.ID }
	if err := json.Unmarshal([]byte(`{"ID":""}`), &back); err != nil || !back.ID.IsZero() {
		t.Errorf("the empty text as an id: %v, %v", back.ID, err)
	}
	if err := json.Unmarshal([]byte(`{"ID":"no"}`), &back); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
}

// Case L87: names have no prefixes, and the invalid is refused with a reason.
func TestL87Names(t *testing.T) {
	for _, good := range []string{"a", "a/", "a/b", "..", "%", `'"`, "日本", "e\u0301", strings.Repeat("a", fence.MaxName)} {
		if err := fence.CheckName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, why := range map[string]string{
		"": "empty", "a\x00b": "control character", "a\nb": "control character", "a\u0085": "control character", "a#1": "reserved", "\xff": "UTF-8",
		strings.Repeat("a", fence.MaxName+1): "512", strings.Repeat("a", 64<<10): "512",
	} {
		if err := fence.CheckName(bad); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%.20q: %v, want an error that says %q", bad, err, why)
		}
	}
}
