#include "runtime/learn/general_text.h"

namespace mft {

const std::vector<const char*>& general_text() {
  static const std::vector<const char*> pieces = {
      R"(# Tree rings

The heart of a tree is dead wood. Only a thin layer below the bark is alive, and each year it adds a ring: wide and pale in spring, when water is plentiful, narrow and dark in late summer. A dry year leaves a thin ring, a warm wet one a thick ring. By comparing the rings of living trees with those of old beams, scientists have built calendars that reach back more than ten thousand years.)",
      R"(# Rivers

Rivers do not run straight. Where a current is slightly faster, it wears away the bank, and the bend grows. On the inner side the water is slow and drops its sand. After some centuries the loop becomes so tight that a flood cuts through its neck, and a curved lake is left behind.)",
      R"(# The letter

"You are late," said Martha without turning round. The kettle had just begun to sing. "I know. The bridge was closed." He hung his wet coat over the chair and looked at the letter on the table. It was still sealed. "You haven't opened it." "It is addressed to both of us," she answered, and set two cups beside it.)",
      R"(# A simple loaf

To bake a simple loaf, mix 500 grams of flour with 350 millilitres of lukewarm water, ten grams of salt and a teaspoon of dry yeast. Knead the dough for ten minutes until it is smooth. Let it rise in a covered bowl for two hours, shape it, and let it rise again for half an hour. Bake it at 230 degrees for about 35 minutes. The loaf is done when it sounds hollow if you knock on its base.)",
      R"(# The lever

A lever lets a small force move a large load. If the load is one metre from the pivot and you push three metres from it on the other side, you need only a third of the force. Nothing is gained for free: your hand moves three times as far as the load. The work, which is force times distance, stays the same.)",
      R"(# mean.py

def mean(values):
    """Return the arithmetic mean of a non-empty list of numbers."""
    if not values:
        raise ValueError("mean of an empty list")
    return sum(values) / len(values))",
      R"(# Council meeting

The town council met on Tuesday evening to discuss the future of the old railway station. About sixty residents attended. The mayor proposed to turn the building into a library with a small cafe, at a cost of 2.4 million over three years. Several speakers asked for a bus stop and more bicycle stands. A decision is expected in the autumn.)",
      R"(# Pencils

Question: A shop sells pencils in boxes of twelve. A school needs 150 pencils. How many boxes must it buy, and how many pencils are left over? Answer: Twelve boxes hold 144 pencils, which is not enough. Thirteen boxes hold 156, so six pencils are left over.)",
      R"(# The first vaccine

In the year 1796 an English doctor noticed that milkmaids who had caught cowpox did not fall ill with smallpox. He took matter from a sore on a milkmaid's hand and scratched it into the arm of a boy. The boy had a mild fever and recovered. Weeks later he did not become ill when he met the more dangerous disease. The word vaccine still remembers the cows: vacca is Latin for cow.)",
      R"(# A broken lamp

Dear Ms Okafor, thank you for your message of 3 March. We are sorry that the lamp arrived with a broken shade. A new one will leave our warehouse tomorrow, and you do not need to return the old one. If you have any further questions, please reply to this message. Kind regards, the service team.)",
      R"(# The moon

The moon turns once about its axis in the same time in which it circles the earth, so we always see the same side. This is no accident. Long ago the moon turned faster, but the earth's pull raised a bulge in its rock, and friction slowed the rotation until it matched the orbit.)",
      R"(# Solitary bees

Most bees live alone. The female digs a tunnel in sand or finds a hollow stem, fills it with a ball of pollen and nectar, lays one egg on it and closes the chamber with a wall of clay. She will never see her young. When they hatch the following spring, the flowers on which they feed have just opened.)",
      R"(# Chess

Chess is played on a board of sixty-four squares. Each side begins with sixteen pieces: a king, a queen, two rooks, two bishops, two knights and eight pawns. The aim is to attack the opposing king in such a way that it cannot escape. A player who is not in check but has no legal move has not lost: the game is a draw.)",
      R"(# Writing a report

Three rules help when you write a report. Put the result first, because many readers stop after the first paragraph. Use one word for one thing, even if it sounds repetitive. And read the text aloud before you send it: where you stumble, your reader will stumble too.)",
      R"(# At sea

The sun had not yet risen when the boats left the harbour. Gulls followed them for a while and then turned back. Out here the sea was almost black, and the only light came from the lamp at the bow. The old man let the net slide through his hands, knot by knot, as his father had taught him, and waited.)",
      R"(# Sound

Sound travels about 340 metres in a second through air, but more than four times as fast through water and fifteen times as fast through steel. That is why you can hear a distant train earlier in the rails than through the air. In empty space there is no sound at all.)",
      R"(# Offer and acceptance

A contract usually needs an offer and its acceptance. The offer must be definite enough that a simple yes completes it. A price tag in a window is in most countries not an offer but an invitation: the customer makes the offer at the counter, and the shop may accept or decline it.)",
      R"(# Lost in the hills

If you are lost in the hills, stay calm and stop. Look at the map, and find the last place where you were certain of your position. If you cannot return to it, stay where you are, keep warm, and make yourself visible. Six signals a minute, by whistle or lamp, followed by a minute of silence, are understood everywhere as a call for help.)",
      R"(## Opening hours of the museum

| day | opens | closes |
| --- | --- | --- |
| Tuesday to Friday | 10:00 | 18:00 |
| Saturday | 11:00 | 20:00 |
| Sunday | 11:00 | 17:00 |

The museum is closed on Mondays and on 1 January. Admission is 9 euros, for students 5. Children under 12 pay nothing.)",
      R"(Before you leave for the mountains:

- Check the weather at the summit, not only in the valley.
- Tell somebody where you are going and when you expect to be back.
- Pack a rain jacket, a torch, a first-aid kit and at least two litres of water.
- Charge your phone, but do not rely on it: there is often no signal above the tree line.)",
      R"(Anna Lindqvist (14 May 1871 - 2 November 1949) was a Swedish engineer and bridge builder. Born in Falun as the third of six children, she studied at the technical college in Gothenburg from 1889 to 1893, where she was the only woman in her year. Her first large work, the railway bridge over the Ljusna, was opened in 1904 and carried traffic until 1967. She published 23 papers, held four patents, and was awarded an honorary doctorate in 1931.)",
      R"(The match ended 3-1 after extra time. Moreno put the visitors ahead in the 12th minute, but Hansen equalised from a free kick shortly before half-time. Both sides hit the post in the second half. With ten men after a red card in the 97th minute, the visitors could not hold on, and two late goals sent 41,200 spectators home happy. The second leg will be played on 16 April.)",
      R"({"order": 48213, "customer": {"name": "J. Petrov", "city": "Varna"}, "items": [{"sku": "LMP-07", "quantity": 2, "price": 24.90}, {"sku": "CBL-11", "quantity": 1, "price": 6.50}], "paid": true, "shipped": null})",
      R"($ mkdir -p reports/2019 && cd reports/2019
$ curl -sO https://example.org/data/march.csv
$ sort -t, -k3 -nr march.csv | head -n 5
$ tar czf ../march.tar.gz . && ls -lh ..)",
      R"(The wind has dropped, the evening grey
Lies folded on the empty bay.
One sail, far out, forgets to move.
The gulls have nothing left to prove.)",
      R"(INTERVIEWER: When did you decide to become a nurse?
RAHMAN: I never decided. My mother was ill for most of a year, and by the end of it I knew all the wards by name.
INTERVIEWER: And you never regretted it?
RAHMAN: On Sunday nights, sometimes. Never on a Monday morning.)",
      R"(The species is a small, long-legged bird of open grassland, 17 to 19 cm long and with a wingspan of up to 34 cm. The upper parts are brown with darker streaks, the underparts buff. Males and females look alike, although the male is slightly larger. Its song, given in flight, is a rising series of four or five clear notes. It breeds from April to July; the three to five eggs hatch after about 13 days. Because of the drainage of wet meadows, its numbers fell by an estimated 40 per cent between 1980 and 2010, and it is listed as near threatened.)",
      R"(In economics, the price elasticity of demand says by how many per cent the quantity sold changes if the price rises by one per cent. It is usually negative. Bread, salt and petrol have values near zero: people buy them at almost any price. Holidays and restaurant meals are far more elastic. A firm that knows the elasticity of its product can tell whether a higher price would raise its revenue or lower it.)",
      R"(The siege lasted from October until the following March. Twice the garrison, by then fewer than 900 men, refused an offer of free passage. When a relief force under Count Albrecht at last crossed the river, the besiegers had already burned their camp and withdrawn to the north. The treaty signed at the abbey in June left the border where it had been, but both towns had lost more than half of their inhabitants.)",
      R"(I have owned this backpack for two years now and used it almost every day. The good: it is light, the zips still run smoothly, and a 15-inch laptop fits. The bad: the side pockets are too shallow for a bottle, and the grey fabric shows every stain. Would I buy it again? Probably yes, but in black. 4 out of 5.)",
      R"(Water boils at 100 °C at sea level, where the pressure is 1,013 hPa. At 3,000 m the pressure is about 700 hPa, and water boils at 90 °C; at the top of Mount Everest, 8,849 m, it boils at about 70 °C. That is why eggs take longer in the mountains, and why a pressure cooker, which reaches about 2 bar and 120 °C, cooks beans in a third of the time.)",
      R"("Who is there?" The lantern moved along the wall and stopped. Nobody answered, but the dog, which had barked at every leaf since midnight, was suddenly quiet. Elsa put her hand on the bolt. She had been told three things about the house when she rented it: that the roof leaked, that the well was good, and that nobody had ever come to the back door. She counted to ten, slowly, and drew the bolt.)",
      R"(== Early years ==
The observatory was founded in 1884 by the [[physicist]] Karl Brandt, who had bought the hill with the money of his wife's family. Its first telescope, a refractor of 27 cm, came from Munich by rail and ox cart.

=== The fire of 1911 ===
On the night of 8 August 1911 a lamp fell over in the library. Most of the star charts were lost{{citation needed}}, but the lenses had been taken down for cleaning and survived.)",
      R"(the committee said on thursday that it would not change its forecast of 2.1 percent growth , citing weak exports and " considerable uncertainty " about energy prices . mr. halloran , who has led the committee since 2009 , told reporters that the next review , originally planned for june , would be brought forward . shares of the country 's three largest banks fell by as much as 4 percent .)",
      R"(21:14 <mira> anyone else getting timeouts from the mirror?
21:14 <@tobias> which one, eu or us
21:15 <mira> eu. ping is fine but git clone just hangs at 12 %
21:17 <@tobias> disk is full again -_- give me 5 min
21:31 <mira> works now, thx!!)",
      R"(From: Helen Marsh <helen@example.org>
To: all-staff
Subject: Re: Re: Fwd: parking on Friday
Date: Wed, 6 Nov 2013 08:52:17 +0100

> Could we not use the yard behind the bakery?

We asked. The answer was no (see below). Please come by bicycle or take the 14.

-- 
Helen)",
      R"(The history of the town 's harbour goes back to the 13th century , when fishermen from the island of Sund built a jetty of oak beams at the mouth of the river . In the 1340s , a stone quay of about 60 metres ( 197 ft ) replaced it . The harbour lost its importance after the storm of 1532 , which filled the channel with sand ; only flat - bottomed boats could still reach the quay . A second , larger basin was begun in 1861 and opened in 1868 , at a cost of 214 , 000 thalers .)",
      R"(ACT TWO. A kitchen. Evening. JONAS at the table, peeling potatoes; RUTH enters with a suitcase.

RUTH. (not looking at him) I found your letter.
JONAS. Which one?
RUTH. The one you did not send. (Pause.) You still spell my name with a t.)",
      R"(1. Remove the four screws (A) and lift off the cover (B). CAUTION: the blade is sharp.
2. Turn the knob (C) anti-clockwise until the arrow points to 0.
3. Insert the new filter, part no. 773-20, with the rough side up.
4. Refit the cover. Tighten the screws crosswise to 1.2 Nm; do NOT use power tools.
5. Press RESET for 3 s. The lamp flashes twice.)",
      R"(@nordlicht_77 we waited 40 MINUTES for the bus at #Centralstation and then it just drove past?! third time this week... pls fix or at least tell us #commuterlife :-()",
  };
  return pieces;
}

}  // namespace mft
