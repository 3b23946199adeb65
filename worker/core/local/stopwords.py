"""Words that carry no content, per language; a short list each, for the languages with most text on the web."""

_ENGLISH = """
    a about above after again against all also am an and any are aren as at be because been before being below
    between both but by can could couldn did didn do does doesn doing don down during each few for from
    further had hadn has hasn have haven having he her here hers herself him himself his how however i if in
    into is isn it its itself just may me might more most must my myself no nor not of off on once only onto
    or other our ours out over own per same shall she should shouldn so some such than that the their theirs
    them themselves then there therefore these they this those through thus to too under until up upon very
    via was wasn we were weren what when where whether which while who whom whose why will with within without
    would wouldn yes yet you your yours
"""

_GERMAN = """
    aber als also am an auch auf aus bei beim bin bis da dabei damit dann das dass dem den der des die dies
    diese diesem diesen dieser dieses doch dort durch ein eine einem einen einer eines er es etwa für gegen
    hat hatte hatten ich ihm ihn ihr ihre ihren im in ins ist ja jede jeder kann kein keine mehr mit nach
    nicht noch nur ob oder ohne sehr sein seine seit sich sie sind so sowie über um und uns unter vom von vor
    war waren was wenn wer werden wie wir wird wo wurde wurden zu zum zur zwischen
"""

_FRENCH = """
    au aux avec ce ces cet cette comme dans de des donc du elle elles en entre est et était été être eu fut il
    ils je la le les leur leurs lui mais me même mes mon ne nos notre nous on ont ou où par pas plus pour qu
    que qui sa sans se ses si son sont sous sur ta te tes toi ton tu un une vos votre vous y
"""

_SPANISH = """
    al ante aunque bajo como con cual cuando de del desde donde dos el él ella ellas ellos en entre era eran
    es esa ese eso esta está este esto estos fue fueron ha hasta hay la las le les lo los más me mi muy ni no
    nos o para pero por porque que quien se según ser si sí sin sobre son su sus también tan tiene un una uno
    unos y ya
"""

_PORTUGUESE = """
    ao aos as até com como da das de dela dele depois do dos e é ela ele eles em entre era essa esse esta está
    este eu foi foram há isso já mais mas mesmo na não nas nem no nos o os ou para pela pelo pelos por que
    quem se seu seus são sem ser só sua suas também tem um uma
"""

_ITALIAN = """
    ad agli ai al alla alle anche che chi ci come con cui da dagli dai dal dalla degli dei del della delle di
    dove e è ed era fu gli ha hanno i il in io la le lo loro ma nei nel nella non o per perché più quale
    questa questo se si sia sono stata stato su sua sue sui sul sulla suo suoi tra un una uno
"""

_DUTCH = """
    aan al als bij dan dat de deze die dit door dus een en er had heeft het hij hoe hun ik in is ja kan maar
    meer met na naar niet nog nu of om onder ook op over te tegen tot uit van veel voor was wat we werd wie
    wij worden wordt zal ze zich zijn zo zij zou
"""

_RUSSIAN = """
    а без более бы был была были было быть в вам вас весь во вот все всего вы где да для до его ее если есть
    еще же за здесь и из или им их к как когда которая которые который ли между мы на над не него нет но о об
    от он она они оно от по под при с со так также там то того тоже только у уже что чтобы эта эти это этого
    этот я
"""

_ARABIC = """
    أن إن إلى أو أي التي الذي الذين بعد بين ثم حتى ذلك عن على عند غير فقد في قبل قد كان كانت كل كما لا لكن لم
    لن ليس ما مع من منذ منها منه هذا هذه هم هو هي و وقد وكان ولا وهو وهي يكون
"""

_HINDI = """
    अपने इस इसके उन उस एक और कर करने का कि किया की कुछ के को कोई गया जब जा जो तक तथा तो था थी थे द्वारा दिया न
    नहीं ने पर बाद भी में यह या ये वह वे से साथ हम हुआ हुई हुए ही हैं है हो होता होती होने
"""

STOPWORD_LISTS = tuple(
    words.split()
    for words in (_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _PORTUGUESE, _ITALIAN, _DUTCH, _RUSSIAN, _ARABIC, _HINDI)
)
"""One list per language, as written; a text is read with the list most of its words are on, the first on a tie."""
