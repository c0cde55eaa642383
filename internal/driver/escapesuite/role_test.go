package escapesuite

import (
	"slices"
	"testing"
)

func TestRoles(t *testing.T) {
	for _, r := range Roles() {
		got, err := ParseRoles(r.String())
		if err != nil || !slices.Equal(got, []Role{r}) {
			t.Errorf("%s is read as %v, %v", r, got, err)
		}
	}
	if all, err := ParseRoles("all"); err != nil || len(all) != 16 {
		t.Errorf("all roles are %v, %v", all, err)
	}
	two, err := ParseRoles("user,root-one-id-image-warm")
	if want := []Role{{As: User}, {As: RootOneID, Image: true, Warm: true}}; err != nil || !slices.Equal(two, want) {
		t.Errorf("%v, %v; want %v", two, err, want)
	}
	for _, bad := range []string{"", "root,", "nobody", "user-warm-image", "all,user"} {
		if got, err := ParseRoles(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
