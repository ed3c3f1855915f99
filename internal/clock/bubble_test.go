package clock

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheClientsClock is a bubble's inside one, and counts sleep elsewhere.
func TestTheClientsClock(t *testing.T) {
	boot, client := Boot(), Client()
	before := boot()
	if at := client(); runtime.GOOS == "linux" && (at < before || at > boot()) { // elsewhere each has an origin of its own
		t.Errorf("%v is not the clock that also counts sleep, %v", at, before)
	}
	synctest.Test(t, func(t *testing.T) {
		client := Client()
		before := client()
		<-time.After(time.Hour)
		if d := client() - before; d != time.Hour {
			t.Errorf("an hour of the bubble was %v", d)
		}
	})
}
