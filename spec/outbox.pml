/* An outbox with two messages or three, two relays, a destination that keeps the order in which it is given messages, and a consumer with an inbox.
 *
 * Messages 0 and 1 are of one ordered key, 2, if there is one, is of none. A relay claims until a deadline, publishes what it has claimed, in order, and settles
 * in one transaction; it may be stopped before each of these for as long as it likes, die after any, and be told of a failure though the
 * destination took the message. It has no clock: that a claim has passed is known to the store alone. The consumer notes a
 * message and does its work in one transaction; it may die before it has acknowledged, and is then given the message again. README.md says what
 * each variant (macro) is; the properties, at the end, are the same text for all of them.
 */
#ifndef MAX
#define MAX 2                    /* attempts */
#endif
#define QUEUE 4                  /* messages on their way to the consumer: as many as are published */

#ifdef OTHER                      /* and one of no key */
#define N 3
#define OTHEROVER (st[2] != PENDING)
#define OTHERPUBLISHED (st[2] == DONE -> pub[2])
#else
#define N 2
#define OTHEROVER true
#define OTHERPUBLISHED true
#endif

#define PENDING 0
#define DONE 1
#define DEAD 2

/* ---- the store ---- */
byte st[N];
byte own[N];                     /* the latest claim, until it has had its verdict: relay + 1. A relay has one claim at a time */
bit passed[N];                   /* its deadline */
byte att[N];

/* ---- the destination and the consumer ---- */
chan q = [QUEUE] of { byte };    /* of the key; what is of none goes straight to nobody */
bit noted[2];
byte eff[2];

/* ---- history that the properties look at; no step decides by it ---- */
bit pub[N];                      /* the destination has it */
bit stolen;                      /* handed out under a live claim */
bit stale;                       /* a verdict changed a message whose latest claim is another */
bit undone;                      /* what was delivered or dead is something else */
bit skipped;                     /* 1 was handed out while 0 was pending and not before it in the claim */
bit disorder;                    /* the effects of the key came in another order, and 0 is not dead */

#ifdef REACH
bit twice, late, expired;
#define SEEN(x) x = 1
#else
#define SEEN(x) skip
#endif

#define LIVE(m) (st[m] == PENDING && own[m] && !passed[m])
#ifdef STEALS
#define FREE(m) (st[m] == PENDING)
#else
#define FREE(m) (st[m] == PENDING && !LIVE(m))
#endif

/* whether the key lets 1 go first */
#if defined(KEYFREE)
#define TURN (true)
#elif defined(DEADBLOCKS)
#define TURN (st[0] == DONE)
#else
#define TURN (st[0] != PENDING)
#endif

inline become(m, s) {
  if :: st[m] != PENDING && s != st[m] -> undone = 1 :: else fi;
  st[m] = s; own[m] = 0; passed[m] = 0
}

inline grab(m) {
  if :: LIVE(m) -> stolen = 1 :: else fi;
  if :: own[m] && passed[m] -> SEEN(expired) :: else fi;
  own[m] = me + 1; passed[m] = 0;
#ifndef POISON
  att[m]++
#endif
}

#ifdef BYID
#define MINE(m) (true)           /* by the message's id alone */
#else
#define MINE(m) (st[m] == PENDING && own[m] == me + 1)
#endif

/* what became of m: s, and whether the attempt counts */
inline settle(m, s, back) {
  if
  :: MINE(m) ->
     if :: own[m] != me + 1 || st[m] != PENDING -> stale = 1 :: else fi;
     become(m, s);
     if :: back && att[m] > 0 -> att[m]-- :: else fi
  :: else -> SEEN(late)
  fi
}

inline publish(m) {
  if :: m < 2 && nfull(q) -> q!m :: else fi;
  if :: pub[m] -> SEEN(twice) :: else fi;
  pub[m] = 1
}

#define RESET first = 0; last = 0; m = 0; failing = 0

proctype Relay(byte me) {
  byte first, last, m;
  bit failing;
end:
  do
  :: atomic { FREE(0) && att[0] == MAX && !LIVE(1) -> become(0, DEAD) }
  :: atomic { FREE(1) && att[1] == MAX && TURN -> become(1, DEAD) }
#ifdef OTHER
  :: atomic { FREE(2) && att[2] == MAX -> become(2, DEAD) }
#endif
  :: atomic { FREE(0) && att[0] < MAX && !LIVE(1) ->
       grab(0);
       if :: FREE(1) && att[1] < MAX -> grab(1); last = 1 :: true fi;
       break
     }
  :: atomic { FREE(1) && att[1] < MAX && TURN ->
       if :: st[0] == PENDING -> skipped = 1 :: else fi;
       grab(1); first = 1; last = 1; m = 1;
       break
     }
#ifdef OTHER
  :: atomic { FREE(2) && att[2] < MAX -> grab(2); first = 2; last = 2; m = 2; break }
#endif
  od;
#ifdef ACKSFIRST
  atomic { settle(first, DONE, 0); if :: last > first -> settle(last, DONE, 0) :: else fi };
#endif
  do
  :: atomic { m <= last && !failing -> publish(m); m++ }
  :: atomic { m <= last && !failing -> failing = 1 }                 /* it did not get there */
  :: atomic { m <= last && !failing -> publish(m); failing = 1 }     /* it did, and the answer was lost */
#ifdef GOESON
  :: atomic { failing && m < last -> publish(last); RESET; goto end }
#endif
  :: atomic { m > last || failing -> break }
  :: atomic { RESET; goto end }                                      /* it died */
  od;
  atomic {
    if :: first < m && m != first -> settle(first, DONE, 0) :: else -> settle(first, PENDING, 0) fi;
    if
    :: last > first && m > last -> settle(last, DONE, 0)
    :: last > first && m == last -> settle(last, PENDING, 0)
    :: last > first && m < last -> settle(last, PENDING, 1)          /* behind what has failed */
    :: else
    fi;
    RESET; goto end
  }
}

active proctype Clock() {
end:
  do
#ifndef NEVERPASSES
  :: atomic { LIVE(0) -> passed[0] = 1 }
  :: atomic { LIVE(1) -> passed[1] = 1 }
#else
  :: false
#endif
#ifdef OTHER
  :: atomic { LIVE(2) -> passed[2] = 1 }
#endif
  od
}

inline effect(m) {
  if
  :: m == 1 && eff[0] == 0 && st[0] != DEAD -> disorder = 1
  :: m == 0 && eff[1] > 0 && st[0] != DEAD -> disorder = 1
  :: else
  fi;
  if :: eff[m] < 2 -> eff[m]++ :: else fi
}

active proctype Consumer() {
  byte m;
end:
  do
#if defined(NOINBOX)
  :: atomic { q?<m> -> effect(m); m = 0; if :: q?_ :: skip fi }     /* or it died, and is given it again */
#elif defined(NOTEAFTER)
  :: atomic { q?<m> -> if :: !noted[m] -> effect(m) :: else fi };
     atomic { if :: noted[m] = 1; q?_ :: skip fi; m = 0 }            /* or it died between the two */
#elif defined(NOTEBEFORE)
  :: atomic { q?<m> -> if :: noted[m] -> q?_; m = 0; goto end :: else -> noted[m] = 1 fi };
     atomic { if :: effect(m); q?_ :: skip fi; m = 0 }
#else
  :: atomic { q?<m> -> if :: !noted[m] -> noted[m] = 1; effect(m) :: else fi; m = 0; if :: q?_ :: skip fi }
#endif
  od
}

init { atomic { run Relay(0); run Relay(1) } }

/* ---- properties ---- */

/* B2: a message is under one live claim at most */
ltl oneclaim { [] !stolen }
/* B3: what a claim says counts only while no other has followed */
ltl owned { [] !stale }
/* B4: what is delivered was published, and stays so */
ltl published { [] ((st[0] == DONE -> pub[0]) && (st[1] == DONE -> pub[1]) && OTHERPUBLISHED) }
ltl final { [] !undone }
/* B7: of an ordered key the first that is pending goes first */
ltl nextinkey { [] !skipped }
/* the inbox: an effect comes once, and not without its note, nor the note without it */
ltl once { [] (eff[0] <= 1 && eff[1] <= 1) }
ltl kept { [] ((noted[0] -> eff[0] > 0) && (noted[1] -> eff[1] > 0)) }
/* and in the order of the key, unless the first was given up */
ltl inorder { [] !disorder }

ltl all { [] (!stolen && !stale && (st[0] == DONE -> pub[0]) && (st[1] == DONE -> pub[1]) && OTHERPUBLISHED && !undone && !skipped
  && eff[0] <= 1 && eff[1] <= 1 && (noted[0] -> eff[0] > 0) && (noted[1] -> eff[1] > 0) && !disorder) }

/* B5: nothing is lost: at last each message is delivered or dead */
ltl ends_over { <> (st[0] != PENDING && st[1] != PENDING && OTHEROVER) }

#ifdef REACH
ltl reach_twice { [] !(twice && eff[0] == 1) }
ltl reach_late { [] !late }
ltl reach_expired { [] !expired }
#endif
ltl reach_dead { [] !(st[0] == DEAD && st[1] == DONE) }
