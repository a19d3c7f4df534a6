"""Word lists of the data generators, written for this project, and a source of made-up words."""

ADJECTIVES = """
able absent active agile airy amber ample angry ancient apt arctic ashen atomic autumnal awake aware
bald balmy bare basic bitter blank bleak blind blunt bold bony brave brief bright brisk broad broken bronze
brown bumpy busy calm candid careful careless casual cheap cheerful chief chilly civil clean clear clever
cloudy clumsy coarse cold comic common complex cool copper correct cosmic costly cozy crafty crazy crisp
crooked cruel cuddly curious curly curved daily damp dapper daring dark dazzling deadly deaf dear decent
deep defiant delicate dense digital dim direct dirty distant dizzy dormant double dreary drowsy dry dull dusty
eager early earnest earthy easy edible elastic elegant empty endless equal eternal even exact exotic expert
fabulous faded faint fair faithful false famous fancy far fast fat fatal faulty feeble fertile festive few
fierce filthy final fine firm fit flaky flat fleet flimsy floral fluffy fluid foggy fond foolish formal fragile
frank free fresh friendly frosty frozen frugal full funny furry future gaudy general gentle genuine giant
giddy gifted glad gleaming global gloomy glossy golden good gothic graceful grand grateful grave gray greasy
great greedy green grim gritty gross grumpy guilty handsome handy happy hard harsh hasty hazel hearty heavy
helpful hidden hollow holy homely honest hot huge human humble hungry husky icy ideal idle immense
innocent intense iron ivory jagged jolly jovial juicy jumbo just keen kind known lame large late latent
lavish lazy leafy lean legal level light likely limp linear little lively local lofty lonely long loose loud lovely
lowly loyal lucky lunar lush magic main major male manual many marble massive mature meager meek mellow merry
messy mild milky minor misty mixed modern modest moist moral muddy murky mute mythical naive narrow
nasty native natural naval near neat needy neutral new nice nimble noble noisy normal novel numb obedient odd
oily old open orange ordinary organic outer oval pale patient peaceful perfect petite pink placid plain plastic
plump polar polite poor popular precious pretty prime private profound prompt proper proud public pure purple
quaint quick quiet quirky rainy rapid rare raw ready real recent red regal remote rich rigid ripe
robust rocky rosy rough round royal rubber rude rugged rural rusty sacred sad safe salty sandy sane scarce
scarlet secret secure selfish serene severe shabby shady shaky shallow sharp shiny short shrill shy silent silky
silly silver simple sincere single skinny sleek sleepy slender slick slim slow sly small smart smooth snappy
sneaky snowy snug sober social soft solar solid somber sour spare special spicy spiral splendid stable stale
stark steady steep sticky stiff still stormy stout strange strict strong sturdy subtle sudden sugary sunny
super superb sure sweet swift tall tame tan tart tasty tender tense tepid terse thick thin thirsty thorny tidy
tight tiny tired total tough toxic tragic tranquil tricky trim tropical true trusty ugly unique upper upset urban
urgent useful usual vacant vague vain valid vast velvet vital vivid vocal warm wary watery wavy weak wealthy weary
weird wet white whole wicked wide wild windy wise witty wooden woolly worried worthy yellow young zany zealous
"""

NOUNS = """
acorn actor agent airport album alley almond anchor angle animal ankle answer antenna apple apron arch arena arm
army arrow artist ash atlas atom attic aunt author avenue baby badge badger bag bakery balcony ball balloon bamboo
banana band bandage bank banner bar barley barn barrel base basin basket bat bath battery bay beach beacon bead
bean bear beard beaver bed bee beetle bell belt bench berry bicycle bird biscuit blade blanket blossom board boat
body bolt bone book boot border bottle boulder bow bowl box boy bracelet brain branch bread breeze brick bridge
broom brother brush bucket buffalo builder bulb bull bundle bus bush butter button cabin cable cactus cake camel
camera camp canal candle candy cannon canoe canvas canyon cap captain car caravan card cargo carpet carrot cart
castle cat cave cellar cement center chain chair chalk chapel chapter cheese cherry chess chest chicken child
chimney chin church cider circle circus citizen city clay cliff clock cloth cloud clover club coach coal coast coat
cobra coffee coin collar colony comb comet compass cook coral cork corn corner cotton couch council country cousin
cow crab cradle crane crater crayon cream creek cricket crop crow crowd crown crystal cup curtain cushion cycle
dagger daisy dancer data daughter dawn day deck deer degree delta dentist desert desk device diamond diary dinner
dish doctor dog doll dolphin donkey door dove dragon drawer dream dress drill drum duck dust eagle ear earth echo
edge editor egg elbow elephant elm emblem engine entry envelope error estate evening eye fabric face factory falcon
family fan farm farmer father feast feather fence fern ferry field fig finger fire fish fist flag flame flask
flock flood floor flower flute fly foal fog folder food foot forest fork fort fountain fox frame friend frog fruit
funnel fur galaxy garden garlic gate gem ghost gift ginger giraffe girl glacier glass globe glove goat gold goose
grain grape grass gravel grove guard guest guide guitar gull gum hail hair hall hammer hammock hand handle harbor
hare harp harvest hat hawk hay hazard head heart hedge heel helmet hen herb herd hero hill hinge hive hobby home
honey hood hook horn horse hose hotel hour house hunter hut ice icon idea igloo inch ink inn insect island ivy
jacket jail jam jar jaw jelly jewel job joke journal judge jug juice jungle jury kettle key king kitchen kite
kitten knee knife knight knot label lace ladder lady lagoon lake lamb lamp lane lantern lark lawn lawyer leaf
leather ledge leg lemon lens letter library lid lily lime line lion lip list lizard lobby lobster lock lodge log
loop lunch lung lynx machine magnet maid mail mango manor map maple market marsh mask mast mat match mayor meadow
meal medal melon member memory menu merchant metal meteor mile milk mill mine mineral mint minute mirror mist
model mole moment monkey month moon moose morning mosaic moss moth mother motor mountain mouse mouth movie mud mule
museum music nail name napkin neck needle nest net night north nose notebook number nurse nut oak oar oasis oat
ocean office olive onion opera orbit orchard organ otter oven owl owner ox oyster packet paddle page paint palace
palm pan panda paper parcel park parrot party pasta pastry path patrol pattern peach peak pear pearl pebble pen
pencil penguin pepper person petal phone piano picture pie pier pig pigeon pillow pilot pin pine pipe pirate pistol
pit pizza planet plant plate player plaza plow plum pocket poem poet point pole police pond pony pool port poster
pot potato powder prairie prince printer prism prize pump puppet puppy puzzle pyramid quail queen quest quilt rabbit
radar radio raft rail rain raisin ranch raven razor recipe record reef report rest rhyme ribbon rice riddle rifle
ring river road robe robin robot rock rocket roof room root rope rose rover rug ruler saddle sail sailor salad
salmon salt sand sandal satin sauce scale scarf school science scout screen sea seal season seat seed servant
shadow shark shed sheep shelf shell shield ship shirt shoe shop shore shovel shrimp sign signal silk singer sink
sister skate sketch ski skirt skull sky sled sleeve slope snail snake snow soap sock sofa soil soldier son song
soup spark sparrow spice spider spoon spring square squash stage stair stamp star statue steam steel stem step
stick stone stool store storm story stove straw stream street string student studio subway sugar suit summer sun
surgeon swamp swan sweater swing sword symbol syrup table tablet tail tailor tank tape target tavern taxi tea teacher
team temple tennis tent theater thief thorn thread throne thumb ticket tide tiger tile timber tin toad toast toe
tomato tongue tool tooth torch tower town toy track tractor trail train trap tray tree trench tribe trophy truck
trumpet trunk tub tulip tunnel turkey turtle tutor twig uncle union valley valve van vase vault vein vendor verse
vessel vest victory village vine violet violin virus voice volcano voyage wagon waiter wall wallet walnut warden
washer wasp watch water wave wax weasel weather wedding week whale wheat wheel whip whistle willow wind window wine
wing winter wire witch wizard wolf woman wood wool word worker world worm wrench writer yacht yard yarn year zebra
"""

VERBS = """
builds carries cleans counts draws finds follows gathers guards hears hides holds keeps leaves lifts likes meets
moves needs opens paints passes pulls pushes reads sees sells sends shows sings takes teaches throws turns visits
watches waits writes
"""

ADVERBS = "again alone always early gladly later never nearby often once outside quietly slowly soon today twice"

PLACES = "above across behind beneath beside beyond near over past through toward under within"

adjectives = ADJECTIVES.split()
nouns = NOUNS.split()
verbs = VERBS.split()
adverbs = ADVERBS.split()
places = PLACES.split()

_ONSETS = ("b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p ph pl pr qu r s sc sh sl sm sn sp st str sw t th "
           "tr v w y z").split() + ["", ""]
_NUCLEI = "a a e e i i o o u ai ea ee ie io oa oo ou".split()
_CODAS = ("b ck ct d ff g l ld ll m mp n nd ng nt p r rd rk rm rn rt s ss st t tch x".split() + [""] * 14)
_ENDINGS = ("able age al ance ant ary ate cy dom ed ence ent er est ful ian ible ic ify ing ion ish ism ist ity ive "
            "ize less let ling ly ment ness or ous ship sion some ster th tion ty ure ward y".split() + [""] * 30)


def made_up_word(rng):
    """A pronounceable word of one or two syllables and often an English ending."""
    syllables = rng.choice((1, 1, 1, 2, 2))
    word = "".join(rng.choice(_ONSETS) + rng.choice(_NUCLEI) + rng.choice(_CODAS) for _ in range(syllables))
    return word + rng.choice(_ENDINGS)
