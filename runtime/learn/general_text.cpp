#include "runtime/learn/general_text.h"

namespace mft {

const char* const kGeneralText =
    R"(# Tree rings

The heart of a tree is dead wood. Only a thin layer below the bark is alive, and each year it adds a ring: wide and pale in spring, when water is plentiful, narrow and dark in late summer. A dry year leaves a thin ring, a warm wet one a thick ring. By comparing the rings of living trees with those of old beams, scientists have built calendars that reach back more than ten thousand years.

# Rivers

Rivers do not run straight. Where a current is slightly faster, it wears away the bank, and the bend grows. On the inner side the water is slow and drops its sand. After some centuries the loop becomes so tight that a flood cuts through its neck, and a curved lake is left behind.

# The letter

"You are late," said Martha without turning round. The kettle had just begun to sing. "I know. The bridge was closed." He hung his wet coat over the chair and looked at the letter on the table. It was still sealed. "You haven't opened it." "It is addressed to both of us," she answered, and set two cups beside it.

# A simple loaf

To bake a simple loaf, mix 500 grams of flour with 350 millilitres of lukewarm water, ten grams of salt and a teaspoon of dry yeast. Knead the dough for ten minutes until it is smooth. Let it rise in a covered bowl for two hours, shape it, and let it rise again for half an hour. Bake it at 230 degrees for about 35 minutes. The loaf is done when it sounds hollow if you knock on its base.

# The lever

A lever lets a small force move a large load. If the load is one metre from the pivot and you push three metres from it on the other side, you need only a third of the force. Nothing is gained for free: your hand moves three times as far as the load. The work, which is force times distance, stays the same.

# mean.py

def mean(values):
    """Return the arithmetic mean of a non-empty list of numbers."""
    if not values:
        raise ValueError("mean of an empty list")
    return sum(values) / len(values)

# Council meeting

The town council met on Tuesday evening to discuss the future of the old railway station. About sixty residents attended. The mayor proposed to turn the building into a library with a small cafe, at a cost of 2.4 million over three years. Several speakers asked for a bus stop and more bicycle stands. A decision is expected in the autumn.

# Pencils

Question: A shop sells pencils in boxes of twelve. A school needs 150 pencils. How many boxes must it buy, and how many pencils are left over? Answer: Twelve boxes hold 144 pencils, which is not enough. Thirteen boxes hold 156, so six pencils are left over.

# The first vaccine

In the year 1796 an English doctor noticed that milkmaids who had caught cowpox did not fall ill with smallpox. He took matter from a sore on a milkmaid's hand and scratched it into the arm of a boy. The boy had a mild fever and recovered. Weeks later he did not become ill when he met the more dangerous disease. The word vaccine still remembers the cows: vacca is Latin for cow.

# A broken lamp

Dear Ms Okafor, thank you for your message of 3 March. We are sorry that the lamp arrived with a broken shade. A new one will leave our warehouse tomorrow, and you do not need to return the old one. If you have any further questions, please reply to this message. Kind regards, the service team.

# The moon

The moon turns once about its axis in the same time in which it circles the earth, so we always see the same side. This is no accident. Long ago the moon turned faster, but the earth's pull raised a bulge in its rock, and friction slowed the rotation until it matched the orbit.

# Solitary bees

Most bees live alone. The female digs a tunnel in sand or finds a hollow stem, fills it with a ball of pollen and nectar, lays one egg on it and closes the chamber with a wall of clay. She will never see her young. When they hatch the following spring, the flowers on which they feed have just opened.

# Chess

Chess is played on a board of sixty-four squares. Each side begins with sixteen pieces: a king, a queen, two rooks, two bishops, two knights and eight pawns. The aim is to attack the opposing king in such a way that it cannot escape. A player who is not in check but has no legal move has not lost: the game is a draw.

# Writing a report

Three rules help when you write a report. Put the result first, because many readers stop after the first paragraph. Use one word for one thing, even if it sounds repetitive. And read the text aloud before you send it: where you stumble, your reader will stumble too.

# At sea

The sun had not yet risen when the boats left the harbour. Gulls followed them for a while and then turned back. Out here the sea was almost black, and the only light came from the lamp at the bow. The old man let the net slide through his hands, knot by knot, as his father had taught him, and waited.

# Sound

Sound travels about 340 metres in a second through air, but more than four times as fast through water and fifteen times as fast through steel. That is why you can hear a distant train earlier in the rails than through the air. In empty space there is no sound at all.

# Offer and acceptance

A contract usually needs an offer and its acceptance. The offer must be definite enough that a simple yes completes it. A price tag in a window is in most countries not an offer but an invitation: the customer makes the offer at the counter, and the shop may accept or decline it.

# Lost in the hills

If you are lost in the hills, stay calm and stop. Look at the map, and find the last place where you were certain of your position. If you cannot return to it, stay where you are, keep warm, and make yourself visible. Six signals a minute, by whistle or lamp, followed by a minute of silence, are understood everywhere as a call for help.)";

}  // namespace mft
